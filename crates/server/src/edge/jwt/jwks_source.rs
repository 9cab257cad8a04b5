//! The key set of an issuer, from a file or a URL, kept current: it is read again from time to time, and when a token names a
//! key that is not in it, because issuers rotate their keys.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Uri;
use hyper::body::Bytes;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::KeySource;
use super::key_set::KeySet;

/// A set is read again after this time, or when a token names an unknown key and this long has passed since the last read.
pub(super) const REFRESH: Duration = Duration::from_secs(600);
pub(super) const MIN_REFRESH: Duration = Duration::from_secs(10);
/// Longest time that the first read of a set, or one after a failure, is put off.
const RETRY: Duration = Duration::from_secs(30);
/// Longest time that a fetch takes, and that a token waits for it.
const MAX_FETCH: Duration = Duration::from_secs(5);
const MAX_SET_BYTES: usize = 1 << 20;

/// The newest key set of an issuer.
#[derive(Debug)]
pub(super) struct Keys {
    current: watch::Receiver<Option<Arc<KeySet>>>,
    /// Asks for a read. One request that waits stands for all.
    wanted: mpsc::Sender<()>,
    /// When the last read ended.
    read_at: Arc<RwLock<Option<Instant>>>,
}

impl Keys {
    /// Files must be there; what is fetched may come later.
    pub(super) fn start(issuer: &str, source: &KeySource) -> Result<Keys, String> {
        let first = match source {
            KeySource::File(path) => Some(Arc::new(read_file(path)?)),
            KeySource::Url { .. } => None,
        };
        let ca_file = match source {
            KeySource::Url { ca_file, .. } => ca_file.as_deref(),
            KeySource::File(_) => None,
        };
        let client = if ca_file.is_some() { Ok(client(ca_file)?) } else { client(None) };
        let (sender, current) = watch::channel(first.clone());
        let (wanted, requests) = mpsc::channel(1);
        let read_at = Arc::new(RwLock::new(first.map(|_| Instant::now())));
        let reader =
            Reader { issuer: issuer.to_owned(), source: source.clone(), sender, read_at: read_at.clone() };
        tokio::spawn(reader.run(client, requests));
        Ok(Keys { current, wanted, read_at })
    }

    /// The newest set. If it does not satisfy the condition, a newer one is read first, unless that was just done.
    pub(super) async fn with(&self, is_enough: impl Fn(&KeySet) -> bool) -> Option<Arc<KeySet>> {
        let known = self.current.borrow().clone();
        if known.as_deref().is_some_and(&is_enough) || !self.may_read() {
            return known;
        }
        let mut current = self.current.clone();
        current.mark_unchanged();
        let _ = self.wanted.try_send(());
        let _ = timeout(MAX_FETCH, current.changed()).await;
        current.borrow().clone()
    }

    fn may_read(&self) -> bool {
        let read_at = *self.read_at.read().unwrap_or_else(PoisonError::into_inner);
        read_at.is_none_or(|at| at.elapsed() >= MIN_REFRESH)
    }
}

/// Reads the set of one issuer until nobody needs it.
struct Reader {
    issuer: String,
    source: KeySource,
    sender: watch::Sender<Option<Arc<KeySet>>>,
    read_at: Arc<RwLock<Option<Instant>>>,
}

impl Reader {
    async fn run(self, client: Result<HttpsClient, String>, mut requests: mpsc::Receiver<()>) {
        let mut pause = if self.sender.borrow().is_some() { REFRESH } else { Duration::ZERO };
        loop {
            if let Ok(None) = timeout(pause, requests.recv()).await {
                return;
            }
            pause = match self.read(&client).await {
                Ok(set) => {
                    self.sender.send_replace(Some(Arc::new(set)));
                    REFRESH
                }
                Err(error) => {
                    let issuer = &self.issuer;
                    tracing::warn!(%issuer, error, "the keys of an issuer cannot be read; the last ones stay in use");
                    // Those who wait for this read go on with what there is.
                    self.sender.send_modify(|_| {});
                    RETRY
                }
            };
            *self.read_at.write().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }

    async fn read(&self, client: &Result<HttpsClient, String>) -> Result<KeySet, String> {
        match &self.source {
            KeySource::File(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read_file(&path)).await;
                read.unwrap_or_else(|error| Err(error.to_string()))
            }
            KeySource::Url { url, .. } => {
                let client = client.as_ref().map_err(Clone::clone)?;
                let fetched = timeout(MAX_FETCH, fetch(client, url)).await;
                let fetched = fetched.unwrap_or_else(|_| Err(format!("no answer in {MAX_FETCH:?}")));
                fetched.and_then(|json| parse(&json)).map_err(|error| format!("{url}: {error}"))
            }
        }
    }
}

fn parse(json: &[u8]) -> Result<KeySet, String> {
    KeySet::parse(json).map_err(|error| error.to_string())
}

fn read_file(path: &Path) -> Result<KeySet, String> {
    let mut json = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_SET_BYTES as u64).read_to_end(&mut json));
    let parsed = read.map_err(|error| error.to_string()).and_then(|_| parse(&json));
    parsed.map_err(|error| format!("{}: {error}", path.display()))
}

type HttpsClient = Client<HttpsConnector<HttpConnector>, Empty<Bytes>>;

/// A client that trusts the CAs of the file, or else what the machine trusts.
fn client(ca_file: Option<&Path>) -> Result<HttpsClient, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = match ca_file {
        Some(file) => builder.with_root_certificates(roots(file)?),
        None => builder.with_native_roots().map_err(|error| error.to_string())?,
    };
    let tls = builder.with_no_client_auth();
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

fn roots(file: &Path) -> Result<RootCertStore, String> {
    let fault = |what: String| format!("{}: {what}", file.display());
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| fault(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| fault(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| fault(format!("has a certificate that is no CA's: {error}")))?;
    }
    if roots.is_empty() { Err(fault("has no certificate in PEM".to_owned())) } else { Ok(roots) }
}

async fn fetch(client: &HttpsClient, url: &str) -> Result<Bytes, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let response = client.get(uri).await.map_err(|error| format!("{error}"))?;
    if !response.status().is_success() {
        return Err(format!("the answer is {}", response.status()));
    }
    let body = Limited::new(response.into_body(), MAX_SET_BYTES).collect().await;
    Ok(body.map_err(|error| error.to_string())?.to_bytes())
}
