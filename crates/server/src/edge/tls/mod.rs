//! TLS on the server's port. Certificate, key and client CA come from files, and [`watch`] replaces them at run time.
//!
//! A replacement is complete or refused: connections, and handshakes that have begun, keep what they began with. It has
//! its own session cache, so no session outlives the CA that verified its client.

mod files;
mod handshake;
mod watch;

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::sync::Notify;

pub use files::{TlsError, TlsFiles};
pub(super) use handshake::accept;
pub(crate) use watch::watch;

use files::Loaded;

/// The certificates of a server. A clone shares them.
#[derive(Clone, Debug)]
pub struct Tls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    files: TlsFiles,
    current: RwLock<Loaded>,
    check: Notify,
}

/// The leaf of the certificate chain that a client proved to hold and that the client CA verified, in DER. None without
/// TLS and for clients without a certificate.
#[derive(Clone, Debug, Default)]
pub struct PeerCertificate(pub Option<Arc<CertificateDer<'static>>>);

impl Tls {
    pub fn load(files: TlsFiles) -> Result<Tls, TlsError> {
        let loaded = Loaded::read(&files)?;
        Ok(Tls(Arc::new(Inner { files, current: RwLock::new(loaded), check: Notify::new() })))
    }

    /// Makes the watch look at the files now.
    pub fn check_now(&self) {
        self.0.check.notify_one();
    }

    fn config(&self) -> Arc<ServerConfig> {
        self.current().config.clone()
    }

    fn current(&self) -> Loaded {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, loaded: Loaded) {
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
    }
}
