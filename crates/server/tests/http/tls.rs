//! TLS on the server's port: who is let in, certificates that are replaced, and handshakes that never end.

use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::ClientConfig;
use rustls::pki_types::{CertificateDer, ServerName};
use server::{Limits, Tls, TlsFiles};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::Served;
use crate::support::certificates::{Authority, Files};

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it is stuck")
}

fn tls(files: &Files) -> TlsFiles {
    TlsFiles {
        certificate: files.certificate.clone(),
        key: files.key.clone(),
        client_ca: None,
        require_client_certificate: false,
    }
}

async fn serve(files: TlsFiles) -> Served {
    Served::start_tls(Limits::default(), Tls::load(files).unwrap()).await
}

async fn connect(served: &Served, config: &ClientConfig) -> io::Result<TlsStream<TcpStream>> {
    let tcp = TcpStream::connect(served.address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    in_time(TlsConnector::from(Arc::new(config.clone())).connect(name, tcp)).await
}

/// Asks for the health over a new connection.
async fn ask(served: &Served, config: &ClientConfig) -> io::Result<String> {
    get(served, config, "/healthz").await
}

async fn get(served: &Served, config: &ClientConfig, path: &str) -> io::Result<String> {
    let mut stream = connect(served, config).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    in_time(stream.read_to_end(&mut answer)).await?;
    Ok(String::from_utf8(answer).unwrap())
}

fn health() -> hyper::Request<Empty<Bytes>> {
    let request = hyper::Request::get("https://localhost/healthz").header("host", "localhost");
    request.body(Empty::new()).unwrap()
}

#[tokio::test]
async fn x21_http1_and_http2_are_served_to_clients_that_trust_the_ca_and_to_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, other) = (Authority::new("ours"), Authority::new("another"));
    let served = serve(tls(&ca.issue(dir.path(), "server"))).await;
    let answer = ask(&served, &ca.client(None)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    let mut config = ca.client(None);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let stream = connect(&served, &config).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut client, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    assert_eq!(in_time(client.send_request(health())).await.unwrap().status(), 200);
    connection.abort();

    let refused = ask(&served, &other.client(None)).await.unwrap_err().to_string();
    assert!(refused.contains("invalid peer certificate"), "{refused}");
    // The failure is counted when the server has seen the client go.
    in_time(async {
        while !get(&served, &ca.client(None), "/metrics")
            .await
            .unwrap()
            .contains("handshake_failures_total 1\n")
        {}
    })
    .await;
    let metrics = get(&served, &ca.client(None), "/metrics").await.unwrap();
    let expiry = metrics.lines().find_map(|line| line.strip_prefix("lessor_tls_certificate_expiry_seconds "));
    assert_eq!(expiry, Some("67090118400"), "{metrics}");
}

#[tokio::test]
async fn x21_a_client_certificate_must_be_of_the_client_ca_and_may_be_required() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, other) = (Authority::new("ours"), Authority::new("another"));
    let (good, bad) = (ca.issue(dir.path(), "good"), other.issue(dir.path(), "bad"));
    let expired = ca.issue_expired(dir.path(), "expired");
    let files =
        TlsFiles { client_ca: Some(ca.write(dir.path(), "ca.pem")), ..tls(&ca.issue(dir.path(), "server")) };
    for is_required in [false, true] {
        let served = serve(TlsFiles { require_client_certificate: is_required, ..files.clone() }).await;
        assert!(ask(&served, &ca.client(Some(&good))).await.is_ok(), "{is_required}");
        assert!(ask(&served, &ca.client(Some(&bad))).await.is_err(), "{is_required}");
        assert!(ask(&served, &ca.client(Some(&expired))).await.is_err(), "{is_required}");
        assert_eq!(ask(&served, &ca.client(None)).await.is_err(), is_required);
    }
}

#[tokio::test]
async fn x21_plain_http_on_a_tls_port_is_told_to_use_tls() {
    let dir = tempfile::tempdir().unwrap();
    let served = serve(tls(&Authority::new("ours").issue(dir.path(), "server"))).await;
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    in_time(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert!(answer.contains("\r\n\r\nThis port speaks TLS: use https://"), "{answer}");
}

/// The files as Kubernetes mounts a secret: links through a link to a directory, which is swapped.
struct Mounted<'a>(&'a Path);

impl Mounted<'_> {
    fn files(&self) -> Files {
        Files { certificate: self.0.join("current/server.pem"), key: self.0.join("current/server.key") }
    }

    /// Issues a certificate, and swaps to it at once.
    fn swap(&self, ca: &Authority, name: &str) -> CertificateDer<'static> {
        let directory = self.0.join(name);
        std::fs::create_dir(&directory).unwrap();
        let leaf = ca.issue(&directory, "server").leaf();
        let link = self.0.join("next");
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        std::fs::rename(link, self.0.join("current")).unwrap();
        leaf
    }
}

/// Whether a new handshake shows this certificate.
async fn shows(served: &Served, config: &ClientConfig, leaf: &CertificateDer<'_>) -> bool {
    let mut fresh = config.clone();
    // A resumed session has the certificate of the first handshake.
    fresh.resumption = rustls::client::Resumption::disabled();
    let stream = connect(served, &fresh).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0] == *leaf
}

/// Connects until the server shows this certificate.
async fn until_shown(served: &Served, config: &ClientConfig, leaf: &CertificateDer<'_>) {
    in_time(async { while !shows(served, config, leaf).await {} }).await;
}

/// Returns once so many replacements, or more, were refused.
async fn until_refused(served: &Served, config: &ClientConfig, count: usize) {
    in_time(async {
        loop {
            let metrics = get(served, config, "/metrics").await.unwrap();
            let refused =
                metrics.lines().find_map(|line| line.strip_prefix("lessor_tls_reload_failures_total "));
            if refused.unwrap().parse::<usize>().unwrap() >= count {
                return;
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn x21_certificates_are_swapped_under_64_clients_without_a_failed_request() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, mounted) = (Authority::new("ours"), Mounted(dir.path()));
    mounted.swap(&ca, "first");
    let certificates = Tls::load(tls(&mounted.files())).unwrap();
    let served = Arc::new(Served::start_tls(Limits::default(), certificates.clone()).await);
    let (is_over, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let config = ca.client(None);
    let clients: Vec<_> = (0..64)
        .map(|_| {
            let (served, config, is_over, asked) =
                (served.clone(), config.clone(), is_over.clone(), asked.clone());
            tokio::spawn(async move {
                let lasting = connect(&served, &config).await.unwrap();
                let (mut lasting, connection) = http1::handshake(TokioIo::new(lasting)).await.unwrap();
                let connection = tokio::spawn(connection);
                while !is_over.load(Ordering::Relaxed) {
                    let answer = ask(&served, &config).await.unwrap();
                    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
                    lasting.ready().await.unwrap();
                    assert_eq!(lasting.send_request(health()).await.unwrap().status(), 200);
                    asked.fetch_add(2, Ordering::Relaxed);
                }
                connection.abort();
            })
        })
        .collect();
    for swap in 0..8 {
        let before = asked.load(Ordering::Relaxed);
        let leaf = mounted.swap(&ca, &format!("swap{swap}"));
        certificates.check_now();
        until_shown(&served, &config, &leaf).await;
        in_time(async {
            while asked.load(Ordering::Relaxed) < before + 64 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        in_time(client).await.expect("a request failed");
    }
}

#[tokio::test]
async fn x21_a_broken_replacement_is_refused_and_the_old_certificate_stays() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new("ours");
    let files = ca.issue(dir.path(), "server");
    let (old, config) = (files.leaf(), ca.client(None));
    let good_key = std::fs::read(&files.key).unwrap();
    let certificates = Tls::load(tls(&files)).unwrap();
    let served = Served::start_tls(Limits::default(), certificates.clone()).await;
    let other = ca.issue(dir.path(), "other");
    let expired = ca.issue_expired(dir.path(), "expired");
    let read = |path: &Path| std::fs::read(path).unwrap();
    let broken = [
        (b"no certificate".to_vec(), good_key.clone()),
        (read(&other.certificate), good_key.clone()),
        (read(&expired.certificate), read(&expired.key)),
        (read(&other.certificate), b"no key".to_vec()),
    ];
    for (refused, (certificate, key)) in (1..).zip(broken) {
        std::fs::write(&files.certificate, certificate).unwrap();
        std::fs::write(&files.key, key).unwrap();
        certificates.check_now();
        until_refused(&served, &config, refused).await;
        assert!(shows(&served, &config, &old).await);
    }
    std::fs::remove_file(&files.key).unwrap();
    certificates.check_now();
    until_refused(&served, &config, 5).await;
    assert!(shows(&served, &config, &old).await);
    std::fs::write(&files.certificate, read(&other.certificate)).unwrap();
    std::fs::write(&files.key, read(&other.key)).unwrap();
    certificates.check_now();
    until_shown(&served, &config, &other.leaf()).await;
}

/// Clients that connect and never finish their handshake; a half of them does not even begin.
async fn stall(served: &Served, count: usize) -> Vec<TcpStream> {
    let mut stalled = Vec::with_capacity(count);
    for n in 0..count {
        let mut stream = in_time(TcpStream::connect(served.address)).await.unwrap();
        if n % 2 == 0 {
            stream.write_all(&[0x16, 0x03, 0x01, 0x02]).await.unwrap();
        }
        stalled.push(stream);
    }
    stalled
}

#[tokio::test]
async fn x21_eight_thousand_stalled_handshakes_leave_others_served() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new("ours");
    // Each stalled client takes a file here and one in the server.
    let usual = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: usual.maximum, maximum: usual.maximum }).unwrap();
    let count = usual.maximum.map_or(8_000, |most| (most as usize / 4).min(8_000));
    let limits = Limits { max_tls_handshake: 10 * PATIENCE, ..Limits::default() };
    let tls = Tls::load(tls(&ca.issue(dir.path(), "server"))).unwrap();
    let served = Served::start_tls(limits, tls).await;
    let stalled = stall(&served, count).await;
    let answer = ask(&served, &ca.client(None)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(stalled);
}

#[tokio::test]
async fn x21_stalled_handshakes_make_room_like_idle_connections() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new("ours");
    let limits = Limits { max_connections: 32, max_tls_handshake: 10 * PATIENCE, ..Limits::default() };
    let tls = Tls::load(tls(&ca.issue(dir.path(), "server"))).unwrap();
    let served = Served::start_tls(limits, tls).await;
    let stalled = stall(&served, 64).await;
    for _ in 0..3 {
        assert!(ask(&served, &ca.client(None)).await.is_ok());
    }
    drop(stalled);
}

#[tokio::test]
async fn x21_a_handshake_that_takes_too_long_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new("ours");
    let limits = Limits { max_tls_handshake: Duration::from_millis(200), ..Limits::default() };
    let tls = Tls::load(tls(&ca.issue(dir.path(), "server"))).unwrap();
    let served = Served::start_tls(limits, tls).await;
    for mut stream in stall(&served, 4).await {
        // A reset is a close as well.
        let _ = in_time(stream.read_to_end(&mut Vec::new())).await;
    }
}
