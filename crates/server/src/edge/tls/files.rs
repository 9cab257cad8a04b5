//! Reads certificate, key and client CA from PEM files into the configuration of handshakes.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};

/// Longest file: bundles of every public CA are shorter.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// The protocols of the port, the preferred one first.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files of a server's TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, followed by the intermediate ones.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The CAs of client certificates. Without them no client is asked for a certificate.
    pub client_ca: Option<PathBuf>,
    /// Whether clients without a certificate are refused.
    pub require_client_certificate: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {}: {error}", .file.display())]
    Unreadable { file: PathBuf, error: io::Error },

    #[error("{} {what}", .file.display())]
    Invalid { file: PathBuf, what: String },
}

/// The files as they were read.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub config: Arc<ServerConfig>,
    /// Verifies the certificates of clients; none without a client CA.
    pub client_verifier: Option<Arc<dyn ClientCertVerifier>>,
    /// The end of the certificate's validity.
    pub expires_at: Timestamp,
    pub fingerprint: blake3::Hash,
}

/// The bytes of the files.
pub(crate) struct Contents {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    pub client_ca: Option<Vec<u8>>,
}

impl Loaded {
    pub(super) fn read(files: &TlsFiles) -> Result<Loaded, TlsError> {
        Contents::read(files)?.load(files)
    }
}

impl Contents {
    pub(super) fn read(files: &TlsFiles) -> Result<Contents, TlsError> {
        Ok(Contents {
            certificate: bytes(&files.certificate)?,
            key: bytes(&files.key)?,
            client_ca: files.client_ca.as_deref().map(bytes).transpose()?,
        })
    }

    /// Recognizes a change without keeping the key.
    pub(crate) fn fingerprint(&self) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new();
        for part in [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref()].into_iter().flatten()
        {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hasher.finalize()
    }

    pub(crate) fn load(&self, files: &TlsFiles) -> Result<Loaded, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(&self.certificate, &files.certificate)?;
        let expires_at = expiry(&chain, &files.certificate)?;
        let key = PrivateKeyDer::from_pem_slice(&self.key)
            .map_err(|error| invalid(&files.key, format!("has no private key in PEM: {error}")))?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| invalid(&files.certificate, format!("cannot be used: {error}")))?;
        let client_verifier = match (&files.client_ca, &self.client_ca) {
            (Some(file), Some(pem)) => {
                Some(client_verifier(pem, file, provider, files.require_client_certificate)?)
            }
            _ => None,
        };
        let builder = match &client_verifier {
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                let certificate = files.certificate.display();
                invalid(&files.key, format!("is not the private key of the certificate in {certificate}"))
            }
            rustls::Error::InvalidCertificate(error) => {
                invalid(&files.certificate, format!("has a certificate that cannot be used: {error:?}"))
            }
            error => invalid(&files.key, format!("has a key that cannot be used: {error}")),
        })?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Loaded { config: Arc::new(config), client_verifier, expires_at, fingerprint: self.fingerprint() })
    }
}

fn client_verifier(
    pem: &[u8],
    file: &Path,
    provider: Arc<CryptoProvider>,
    is_required: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, file)? {
        roots
            .add(certificate)
            .map_err(|error| invalid(file, format!("has a certificate that is no CA's: {error}")))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let verifier = if is_required { verifier } else { verifier.allow_unauthenticated() };
    verifier.build().map_err(|error| invalid(file, format!("cannot verify clients: {error}")))
}

fn bytes(file: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|open| open.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| TlsError::Unreadable { file: file.to_owned(), error })?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(invalid(file, format!("is longer than {MAX_FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

fn certificates(pem: &[u8], file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| invalid(file, format!("is not valid PEM: {error}")))?;
    if found.is_empty() {
        return Err(invalid(file, "has no certificate in PEM".to_owned()));
    }
    Ok(found)
}

fn expiry(chain: &[CertificateDer<'_>], file: &Path) -> Result<Timestamp, TlsError> {
    let leaf = chain.first().map(|leaf| x509_parser::parse_x509_certificate(leaf));
    let Some(Ok((_, leaf))) = leaf else {
        return Err(invalid(file, "has no valid X.509 certificate".to_owned()));
    };
    let seconds = leaf.validity().not_after.timestamp();
    Timestamp::from_second(seconds)
        .map_err(|error| invalid(file, format!("has a certificate without a valid end: {error}")))
}

fn invalid(file: &Path, what: String) -> TlsError {
    TlsError::Invalid { file: file.to_owned(), what }
}
