//! The certificate chain that a client proved to hold during its handshake, and whether the client CA still vouches for it.

use std::sync::atomic::{AtomicU64, Ordering};

use rustls::pki_types::{CertificateDer, UnixTime};

use super::Tls;

#[derive(Debug)]
pub(crate) struct PeerChain {
    /// The certificate of the client, followed by the intermediate ones.
    chain: Vec<CertificateDer<'static>>,
    tls: Tls,
    /// Twice the generation of the files by which the chain was last verified, plus one if it was found good.
    verified: AtomicU64,
}

impl PeerChain {
    /// A chain that was verified by the files of this generation, or later ones.
    pub(super) fn new(chain: &[CertificateDer<'_>], tls: &Tls, generation: u64) -> PeerChain {
        let chain = chain.iter().map(|certificate| certificate.clone().into_owned()).collect();
        PeerChain { chain, tls: tls.clone(), verified: AtomicU64::new(generation * 2 + 1) }
    }

    /// The certificate of the client, in DER.
    pub(crate) fn leaf(&self) -> Option<&[u8]> {
        self.chain.first().map(|leaf| leaf.as_ref())
    }

    /// Whether the client CA of now signs the chain. Verified once for each replacement of the files.
    pub(crate) fn is_trusted(&self) -> bool {
        let generation = self.tls.generation();
        let verified = self.verified.load(Ordering::Relaxed);
        if verified / 2 == generation {
            return verified % 2 == 1;
        }
        let is_trusted = self.verify();
        self.verified.store(generation * 2 + u64::from(is_trusted), Ordering::Relaxed);
        is_trusted
    }

    /// Resolves when the client CA was replaced by one that does not sign the chain.
    pub(crate) async fn untrusted(&self) {
        let mut replaced = self.tls.0.generation.subscribe();
        while self.is_trusted() && replaced.changed().await.is_ok() {}
    }

    fn verify(&self) -> bool {
        let Some((verifier, (leaf, others))) =
            self.tls.current().client_verifier.zip(self.chain.split_first())
        else {
            return false;
        };
        verifier.verify_client_cert(leaf, others, UnixTime::now()).is_ok()
    }
}
