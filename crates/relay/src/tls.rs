//! Mutual TLS between the nodes of a cluster. Every node derives the same certificate authority from the key of the cluster
//! and issues its own certificate; a node without the key can neither connect nor be connected to.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The name in the certificate of every node. Nodes are told apart by their addresses.
const NAME: &str = "lessor-relay";
/// The protocol on the connections, with its version.
const PROTOCOL: &[u8] = b"lessor-relay/1";
const CONTEXT: &str = "lessor 2026 relay certificate authority";
/// The shortest key of a cluster.
pub const MIN_KEY_BYTES: usize = 32;
/// What precedes the 32 bytes of an Ed25519 key in PKCS #8.
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("the key of the cluster has {0} bytes; it needs at least {MIN_KEY_BYTES} random bytes")]
    ShortKey(usize),
    #[error("the certificates of the relay cannot be made: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("TLS of the relay cannot be set up: {0}")]
    Tls(String),
}

/// The TLS settings of a node, for both directions. Cheap to clone.
#[derive(Clone)]
pub struct ClusterTls {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) client: Arc<ClientConfig>,
    /// The name that the certificate of every node has.
    pub(crate) name: ServerName<'static>,
}

impl ClusterTls {
    /// Derives the authority from the key of the cluster and issues a certificate for this node. The certificate is valid
    /// forever, whatever the clock says: the key is what counts, and a new key replaces all certificates.
    pub fn from_cluster_key(key: &[u8]) -> Result<ClusterTls, TlsError> {
        if key.len() < MIN_KEY_BYTES {
            return Err(TlsError::ShortKey(key.len()));
        }
        let seed = blake3::derive_key(CONTEXT, key);
        let pkcs8 = PrivatePkcs8KeyDer::from([&PKCS8_ED25519[..], &seed].concat());
        let ca_key = KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, &PKCS_ED25519)?;
        let mut ca = parameters(Vec::new())?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let root = ca.self_signed(&ca_key)?;
        let issuer = Issuer::new(ca, ca_key);

        let node_key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut node = parameters(vec![NAME.to_owned()])?;
        node.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let chain = vec![CertificateDer::from(node.signed_by(&node_key, &issuer)?)];
        let private = || PrivateKeyDer::from(PrivatePkcs8KeyDer::from(node_key.serialize_der()));

        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).map_err(tls)?;
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(tls)?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(tls)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(chain.clone(), private())
            .map_err(tls)?;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(tls)?
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, private())
            .map_err(tls)?;
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        let name = ServerName::try_from(NAME).map_err(tls)?;
        Ok(ClusterTls { server: Arc::new(server), client: Arc::new(client), name })
    }
}

/// Whether a handshake failed because the other node has another key.
pub(crate) fn is_other_key(error: &std::io::Error) -> bool {
    let Some(error) = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) else {
        return false;
    };
    matches!(
        error,
        rustls::Error::InvalidCertificate(_)
            | rustls::Error::NoCertificatesPresented
            | rustls::Error::AlertReceived(
                rustls::AlertDescription::UnknownCA
                    | rustls::AlertDescription::BadCertificate
                    | rustls::AlertDescription::DecryptError
                    | rustls::AlertDescription::CertificateUnknown
                    | rustls::AlertDescription::CertificateRequired
            )
    )
}

fn parameters(names: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name.push(DnType::CommonName, NAME);
    parameters.not_before = rcgen::date_time_ymd(1975, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(4096, 1, 1);
    Ok(parameters)
}

fn tls(error: impl std::fmt::Display) -> TlsError {
    TlsError::Tls(error.to_string())
}
