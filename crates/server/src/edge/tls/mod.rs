//! TLS on the server's port. Certificate, key and client CA come from files, and [`watch`] replaces them at run time.
//!
//! A replacement is complete or refused: connections, and handshakes that have begun, keep what they began with. It has
//! its own session cache, so no session outlives the CA that verified its client.

pub(crate) mod files;
mod handshake;
mod peer_chain;
mod watch;

use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use tokio::sync::{Notify, watch as latest};

pub use files::{TlsError, TlsFiles};
pub(super) use handshake::accept;
pub(crate) use peer_chain::PeerChain;
pub(crate) use watch::watch;

use files::Loaded;

/// The certificates of a server. A clone shares them.
#[derive(Clone, Debug)]
pub struct Tls(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    files: TlsFiles,
    current: RwLock<Loaded>,
    /// Counts the replacements; it rises after one is in place.
    generation: latest::Sender<u64>,
    check: Notify,
}

impl Tls {
    pub fn load(files: TlsFiles) -> Result<Tls, TlsError> {
        let (loaded, generation) = (Loaded::read(&files)?, latest::Sender::new(0));
        Ok(Tls(Arc::new(Inner { files, current: RwLock::new(loaded), generation, check: Notify::new() })))
    }

    /// Makes the watch look at the files now.
    pub fn check_now(&self) {
        self.0.check.notify_one();
    }

    fn config(&self) -> Arc<ServerConfig> {
        self.current().config.clone()
    }

    fn generation(&self) -> u64 {
        *self.0.generation.borrow()
    }

    fn current(&self) -> Loaded {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, loaded: Loaded) {
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = loaded;
        self.0.generation.send_modify(|generation| *generation += 1);
    }
}
