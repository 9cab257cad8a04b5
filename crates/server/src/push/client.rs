//! The HTTP client of one target. It goes to checked addresses only, follows no redirect, uses no proxy, and reads but
//! the beginning of an answer.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use authority::PushTarget;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use bytes::Bytes;
use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HyperClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::crypto::ring;
use sha2::Sha256;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::resolver::Resolver;
use crate::convert::push_secrets::CannotOpen;
use crate::edge::address_guard::{Guard, Refused};

const MAX_CONNECT: Duration = Duration::from_secs(5);
/// Longest time from looking up the name to the answer's status.
const MAX_POST: Duration = Duration::from_secs(30);
/// The rest of an answer is read so that its connection can be used again, but only so much and for so long.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
const MAX_ANSWER_READ: Duration = Duration::from_secs(1);
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Most idle connections of a target, and how long they stay open.
const MAX_IDLE: usize = 32;
const MAX_IDLE_AGE: Duration = Duration::from_secs(30);

const USER_AGENT: &str = concat!("lessor/", env!("CARGO_PKG_VERSION"));
const DISPATCH_ID: HeaderName = HeaderName::from_static("lessor-dispatch-id");
const SIGNATURE: HeaderName = HeaderName::from_static("lessor-signature");

pub(super) struct Client {
    http: HyperClient<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>,
    uri: Uri,
    headers: HeaderMap,
    secret: Option<Arc<str>>,
}

/// What came of a POST.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answered {
    Accepted,
    /// The target will never take this envelope.
    Unacceptable(StatusCode),
    /// The target cannot be reached or does not take tasks now.
    Unwell {
        why: String,
        retry_after: Option<Duration>,
    },
}

/// Why there can be no client for a target.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoClient {
    #[error("its URL {0}")]
    Refused(#[from] Refused),
    #[error("its URL or a header cannot be sent: {0}")]
    Unsendable(#[from] axum::http::Error),
    #[error(transparent)]
    Sealed(#[from] CannotOpen),
}

impl Client {
    /// `tls` can be had from [`tls`]; without it `https` is not spoken.
    pub(super) fn new(
        target: &PushTarget,
        guard: Guard,
        look_ups: Arc<Semaphore>,
        tls: ClientConfig,
    ) -> Result<Client, NoClient> {
        let url = guard.url(&target.url)?;
        let mut headers = HeaderMap::new();
        for (name, value) in &target.headers {
            let mut value = HeaderValue::from_str(value).map_err(axum::http::Error::from)?;
            value.set_sensitive(true);
            headers.insert(HeaderName::try_from(&**name).map_err(axum::http::Error::from)?, value);
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(USER_AGENT));
        let mut connector = HttpConnector::new_with_resolver(Resolver::new(guard, look_ups));
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(MAX_CONNECT));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let http = HyperClient::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(MAX_IDLE_AGE)
            .pool_max_idle_per_host(MAX_IDLE)
            .http1_max_buf_size(MAX_HEAD_BYTES)
            .build(connector);
        let uri = Uri::try_from(url.as_str()).map_err(axum::http::Error::from)?;
        Ok(Client { http, uri, headers, secret: target.secret.clone() })
    }

    /// Sends one envelope, and says what came of it.
    pub(super) async fn post(&self, dispatch_id: &str, body: Bytes, now_s: u64) -> Answered {
        let request = match self.request(dispatch_id, body, now_s) {
            Ok(request) => request,
            Err(error) => return unwell(error.to_string()),
        };
        match timeout(MAX_POST, self.http.request(request)).await {
            Err(_) => unwell(format!("it did not answer within {} s", MAX_POST.as_secs())),
            Ok(Err(error)) => unwell(with_causes(&error)),
            Ok(Ok(response)) => {
                let answered = judge(&response);
                let _ = timeout(MAX_ANSWER_READ, read_beginning(response.into_body())).await;
                answered
            }
        }
    }

    fn request(
        &self,
        dispatch_id: &str,
        body: Bytes,
        now_s: u64,
    ) -> Result<Request<Full<Bytes>>, axum::http::Error> {
        let mut request = Request::post(self.uri.clone()).header(DISPATCH_ID, dispatch_id);
        if let Some(secret) = &self.secret {
            request = request.header(SIGNATURE, signature(secret, now_s, &body));
        }
        let mut request = request.body(Full::new(body))?;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }
}

/// What `https` needs: the certificates that this machine trusts. One for all targets.
pub(super) fn tls() -> ClientConfig {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = match builder.with_safe_default_protocol_versions() {
        Ok(builder) => builder,
        Err(error) => unreachable!("the provider has the default versions: {error}"),
    };
    let native: io::Result<_> = builder.clone().with_native_roots();
    match native {
        Ok(builder) => builder.with_no_client_auth(),
        Err(error) => {
            tracing::warn!(%error, "no certificates are trusted here, so no push target can be called by https");
            builder.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth()
        }
    }
}

fn judge(response: &Response<Incoming>) -> Answered {
    match response.status() {
        status if status.is_success() => Answered::Accepted,
        status @ (StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNSUPPORTED_MEDIA_TYPE
        | StatusCode::UNPROCESSABLE_ENTITY) => Answered::Unacceptable(status),
        status => Answered::Unwell {
            why: format!("it answered {status}"),
            retry_after: match status {
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                    retry_after(response.headers())
                }
                _ => None,
            },
        },
    }
}

/// In seconds; a date is not read.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

async fn read_beginning(mut body: Incoming) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > MAX_ANSWER_BYTES {
            return;
        }
    }
}

fn unwell(why: String) -> Answered {
    Answered::Unwell { why, retry_after: None }
}

/// The cause that says most stands at the end of the chain.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(|error| error.to_string()).collect::<Vec<_>>().join(": ")
}

/// The value of the header `lessor-signature`: the time in seconds, and the HMAC-SHA256 over it and the body.
fn signature(secret: &str, unix_s: u64, body: &[u8]) -> String {
    // HMAC takes a key of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return String::new() };
    mac.update(format!("{unix_s}.").as_bytes());
    mac.update(body);
    let hex = HEXLOWER.encode(&mac.finalize().into_bytes());
    format!("t={unix_s},v1={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac sixteen-byte-key`.
    #[test]
    fn the_signature_is_the_documented_one() {
        let expected = "t=1700000000,v1=8ef7df12fdfbcf66dbc750a88e4a6d706f663ed4f609a11127682b67f5bf11bb";
        assert_eq!(signature("sixteen-byte-key", 1_700_000_000, b"{\"a\":1}"), expected);
    }
}
