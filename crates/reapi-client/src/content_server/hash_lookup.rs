//! Finds a blob by its hash alone, which the Remote Execution API has no call for: by HEAD, as caches over HTTP answer it.

use std::error::Error;
use std::io;
use std::time::Duration;

use blobs::{Digest, DigestFunction, Hash};
use bytes::Bytes;
use credentials::Connector;
use http_body_util::Empty;
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::timeout;

use crate::retry::retried;
use crate::{CONNECT_TIMEOUT, CasError};

const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct HashLookup {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    url: String,
    authorization: Option<HeaderValue>,
    /// How long a lookup that fails on the way is repeated.
    patience: Duration,
}

impl HashLookup {
    pub(super) fn new(url: &str, connector: &Connector, patience: Duration) -> io::Result<HashLookup> {
        let http = connector.http(CONNECT_TIMEOUT).map_err(io::Error::other)?;
        let authorization = connector.authorization().map(HeaderValue::try_from).transpose();
        let mut authorization = authorization.map_err(io::Error::other)?;
        if let Some(value) = &mut authorization {
            value.set_sensitive(true);
        }
        let client = Client::builder(TokioExecutor::new()).build(http);
        Ok(HashLookup { client, url: url.trim_end_matches('/').to_owned(), authorization, patience })
    }

    /// The digest of the blob with this hash. Caches over HTTP know SHA-256 only.
    pub(super) async fn find(
        &self,
        tenant: &str,
        function: DigestFunction,
        hash: Hash,
    ) -> Result<Option<Digest>, CasError> {
        if function != DigestFunction::Sha256 {
            return Ok(None);
        }
        retried(self.patience, || self.find_once(tenant, function, hash)).await
    }

    async fn find_once(
        &self,
        tenant: &str,
        function: DigestFunction,
        hash: Hash,
    ) -> Result<Option<Digest>, CasError> {
        let mut request = Request::builder()
            .method(Method::HEAD)
            .uri(format!("{}/cas/{hash}", self.url))
            .header(wire::TENANT_HEADER, tenant);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        let request = request.body(Empty::new()).map_err(|error| CasError::Refused(error.to_string()))?;
        let response = match timeout(LOOKUP_TIMEOUT, self.client.request(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(CasError::Unavailable(root_cause(&error))),
            Err(_) => return Err(CasError::Unavailable("it does not answer".to_owned())),
        };
        match response.status() {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => {
                let size =
                    response.headers().get(CONTENT_LENGTH).and_then(|size| size.to_str().ok()?.parse().ok());
                Ok(size.map(|size| Digest { function, hash, size }))
            }
            status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
                Err(CasError::Unavailable(format!("it answers {status}")))
            }
            status => Err(CasError::Refused(format!("it answers {status} to HEAD /cas/{hash}"))),
        }
    }
}

/// The innermost cause, such as a refused connection, which is the most useful.
fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
