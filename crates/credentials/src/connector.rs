//! Makes the connections to one server.

use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::ClientConfig;

use crate::in_process::Dialer;
use crate::{ApiKey, Error, tls};

/// The default connects in plain text and sends no key.
#[derive(Clone, Debug, Default)]
pub struct Connector {
    tls: Option<ClientConfig>,
    /// Whether it also connects in plain text when it has TLS.
    allows_plain: bool,
    in_process: Option<Dialer>,
    api_key: Option<ApiKey>,
}

impl Connector {
    pub(crate) fn new(tls: Option<ClientConfig>, api_key: Option<ApiKey>) -> Connector {
        Connector { tls, api_key, ..Connector::default() }
    }

    pub(crate) fn for_any_server(tls: ClientConfig) -> Connector {
        Connector { tls: Some(tls), allows_plain: true, ..Connector::default() }
    }

    /// Connections of an HTTP/1 client. A connector for a server with https never connects in plain text.
    pub fn http(&self, connect_timeout: Duration) -> Result<HttpsConnector<HttpConnector>, Error> {
        let is_https_only = self.tls.is_some() && !self.allows_plain;
        let tls = self.tls.clone().map_or_else(tls::untrusting, Ok)?;
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
        let builder = if is_https_only { builder.https_only() } else { builder.https_or_http() };
        let mut tcp = tcp();
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(connect_timeout));
        Ok(builder.enable_http1().wrap_connector(tcp))
    }

    /// For the server of this process.
    pub fn in_process(dialer: Dialer) -> Connector {
        Connector { in_process: Some(dialer), ..Connector::default() }
    }

    /// The secret value of the header `authorization`.
    pub fn authorization(&self) -> Option<String> {
        self.api_key.as_ref().map(ApiKey::bearer)
    }
}

/// Connects to the port of https as well.
fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp
}

#[cfg(feature = "grpc")]
mod grpc {
    use hyper_util::rt::TokioIo;
    use tonic::metadata::{Ascii, MetadataValue};
    use tonic::transport::{self, Channel, Endpoint};
    use tower::service_fn;

    use super::*;

    impl Connector {
        /// A channel that connects when it is used, and again after a lost connection.
        pub fn connect_lazy(&self, endpoint: &Endpoint) -> Channel {
            match (&self.in_process, &self.tls) {
                (Some(dialer), _) => endpoint.connect_with_connector_lazy(dial(dialer)),
                (None, Some(tls)) => endpoint.connect_with_connector_lazy(https(tls, endpoint)),
                (None, None) => endpoint.connect_lazy(),
            }
        }

        pub async fn connect(&self, endpoint: &Endpoint) -> Result<Channel, transport::Error> {
            match (&self.in_process, &self.tls) {
                (Some(dialer), _) => endpoint.connect_with_connector(dial(dialer)).await,
                (None, Some(tls)) => endpoint.connect_with_connector(https(tls, endpoint)).await,
                (None, None) => endpoint.connect().await,
            }
        }

        /// [`Connector::authorization`] as metadata, which is not shown in debug output.
        pub fn authorization_metadata(&self) -> Option<MetadataValue<Ascii>> {
            // A key is printable ASCII.
            let mut value: MetadataValue<Ascii> = self.authorization()?.parse().ok()?;
            value.set_sensitive(true);
            Some(value)
        }
    }

    fn https(tls: &ClientConfig, endpoint: &Endpoint) -> HttpsConnector<HttpConnector> {
        let mut tcp = tcp();
        tcp.set_nodelay(endpoint.get_tcp_nodelay());
        HttpsConnectorBuilder::new()
            .with_tls_config(tls.clone())
            .https_only()
            .enable_http2()
            .wrap_connector(tcp)
    }

    fn dial(
        dialer: &Dialer,
    ) -> impl tower::Service<
        tonic::codegen::http::Uri,
        Response = TokioIo<tokio::io::DuplexStream>,
        Error = std::io::Error,
        Future: Send,
    > + Send
    + use<> {
        let dialer = dialer.clone();
        service_fn(move |_| {
            let dialer = dialer.clone();
            async move { dialer.dial().await.map(TokioIo::new) }
        })
    }
}
