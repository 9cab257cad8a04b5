//! Client certificates as identities: rules say what their holders may do, over HTTP and gRPC, for as long as the certificate
//! is valid and its CA is trusted.

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use authority::Role;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use server::CertificateAttribute::CommonName;
use server::{AuthMode, CertificateRule, Grants, Options, Tls, TlsFiles};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::transport::Endpoint;
use tower::service_fn;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{RegisterWorkerRequest, WorkHello, WorkRequest};

use crate::support::Served;
use crate::support::certificates::{Authority, Files};

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a certificate of the tests lives that is about to expire.
const BRIEF: Duration = Duration::from_secs(6);

async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it is stuck")
}

/// A server whose callers are known by their certificates.
struct Fixture {
    dir: TempDir,
    ca: Authority,
    tls: Tls,
    served: Served,
}

fn rule(pattern: &str, tenant: Option<&str>, role: Role) -> CertificateRule {
    let grants = Grants {
        tenants: tenant.map(Into::into).into_iter().collect(),
        roles: vec![role],
        queues: if role == Role::Worker { vec!["q".into()] } else { Vec::new() },
        worker_prefix: (role == Role::Worker).then(|| "w-".into()),
        properties: Vec::new(),
    };
    CertificateRule { name: None, patterns: vec![(CommonName, pattern.to_owned())], grants: Arc::new(grants) }
}

impl Fixture {
    async fn start() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let ca = Authority::new("ours");
        let Files { certificate, key } = ca.issue(dir.path(), "server");
        let client_ca = Some(ca.write(dir.path(), "ca.pem"));
        let files = TlsFiles { certificate, key, client_ca, require_client_certificate: false };
        let tls = Tls::load(files).unwrap();
        let rules = vec![rule("worker-*", Some("acme"), Role::Worker), rule("root", None, Role::Admin)];
        let options = Options { auth: AuthMode::Keys, certificates: rules, ..Options::default() };
        let served = Served::start_tls_with(options, tls.clone()).await;
        Fixture { dir, ca, tls, served }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A client with a certificate of this common name, or without one.
    fn client(&self, name: Option<&str>) -> ClientConfig {
        self.ca.client(name.map(|name| self.ca.issue(self.path(), name)).as_ref())
    }

    /// A connection with a certificate of this common name, or without one.
    async fn connect(&self, name: Option<&str>) -> Connection {
        connect(&self.served, self.client(name)).await
    }

    async fn grpc(&self, name: &str) -> WorkerSchedulerClient<tonic::transport::Channel> {
        let (address, config) = (self.served.address, self.client(Some(name)));
        let connector = service_fn(move |_| {
            let config = h2(config.clone());
            async move {
                let tcp = TcpStream::connect(address).await?;
                let name = ServerName::try_from("localhost").unwrap();
                TlsConnector::from(Arc::new(config)).connect(name, tcp).await.map(TokioIo::new)
            }
        });
        let endpoint = Endpoint::from_static("http://localhost");
        WorkerSchedulerClient::new(endpoint.connect_with_connector(connector).await.unwrap())
    }

    /// Replaces the CA of clients, and waits until this connection notices.
    async fn replace_ca(&self, ca: &Authority, connection: &Connection, expected: u16) {
        ca.write(self.path(), "ca.pem");
        self.tls.check_now();
        in_time(async { while connection.get("/readyz").await.0 != expected {} }).await;
    }
}

fn h2(mut config: ClientConfig) -> ClientConfig {
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

#[derive(Clone)]
struct Connection(SendRequest<Full<Bytes>>);

async fn connect(served: &Served, config: ClientConfig) -> Connection {
    let tcp = TcpStream::connect(served.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = in_time(TlsConnector::from(Arc::new(h2(config))).connect(name, tcp)).await.unwrap();
    let (client, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Connection(client)
}

impl Connection {
    async fn call(&self, method: &str, path: &str, body: Option<Value>, key: Option<&str>) -> (u16, Value) {
        let mut request = hyper::Request::builder().method(method).uri(format!("https://localhost{path}"));
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = request.header("content-type", "application/json").body(Full::from(body)).unwrap();
        let response = in_time(self.0.clone().send_request(request)).await.unwrap();
        let status = response.status().as_u16();
        let bytes = in_time(response.into_body().collect()).await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.call("GET", path, None, None).await
    }

    async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        self.call("POST", path, Some(body), None).await
    }
}

fn detail(body: &Value) -> &str {
    body["detail"].as_str().unwrap_or_default()
}

fn poll(worker: &str, queue: &str, wait_ms: u64) -> Value {
    json!({"workerId": worker, "queues": [queue], "waitMs": wait_ms})
}

#[tokio::test]
async fn a_rule_says_what_the_holder_of_a_certificate_may_do() {
    let fixture = Fixture::start().await;
    let worker = fixture.connect(Some("worker-1")).await;
    assert_eq!(worker.post("/v1/leases", poll("w-1", "q", 0)).await.0, 200);
    assert_eq!(worker.post("/v1/leases", poll("w-1", "other", 0)).await.0, 403, "another queue");
    assert_eq!(worker.post("/v1/leases", poll("x", "q", 0)).await.0, 403, "another name");
    let (status, told) = worker.get("/v1/tasks").await;
    assert_eq!(status, 403, "{told}");
    assert!(detail(&told).contains("the certificate of worker-1 has worker"), "{told}");

    for (name, expected) in [(None, "needs an API key"), (Some("stranger"), "auth.certificates applies")] {
        let (status, told) = fixture.connect(name).await.get("/v1/tasks").await;
        assert_eq!(status, 401, "{told}");
        assert!(detail(&told).contains(expected), "{told}");
        assert_eq!(fixture.connect(name).await.get("/healthz").await.0, 200);
    }

    let root = fixture.connect(Some("root")).await;
    let key = json!({"name": "made", "tenants": ["acme"], "roles": ["reader"]});
    let (status, made) = root.post("/v1/keys", key).await;
    assert_eq!(status, 201, "{made}");
    let (_, keys) = root.get("/v1/keys").await;
    assert_eq!(keys["keys"][0]["createdBy"], "root", "{keys}");
    // A header counts more than a certificate, also one that is of no use.
    let key = made["key"].as_str().unwrap();
    assert_eq!(worker.call("GET", "/v1/tasks", None, Some(key)).await.0, 200);
    assert_eq!(root.call("GET", "/v1/keys", None, Some(key)).await.0, 403);
    assert_eq!(root.call("GET", "/v1/keys", None, Some("nonsense")).await.0, 401);
}

#[tokio::test]
async fn a_certificate_is_an_identity_over_grpc() {
    let fixture = Fixture::start().await;
    let (mut client, mut other) = (fixture.grpc("worker-1").await, fixture.grpc("worker-2").await);
    let hello = |worker: &str| RegisterWorkerRequest { worker_id: worker.to_owned(), ..Default::default() };
    client.register_worker(hello("w-1")).await.unwrap();
    assert_eq!(client.register_worker(hello("x-1")).await.unwrap_err().code(), Code::PermissionDenied);
    // One rule makes as many identities as there are names.
    let refused = other.register_worker(hello("w-1")).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("registered by another identity"), "{refused:?}");
    other.register_worker(hello("w-2")).await.unwrap();
    fixture.grpc("worker-1").await.register_worker(hello("w-1")).await.unwrap();
    let stranger = fixture.grpc("stranger").await.register_worker(hello("w-3")).await.unwrap_err();
    assert_eq!(stranger.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn what_a_certificate_began_ends_when_its_ca_is_replaced() {
    let fixture = Fixture::start().await;
    let connection = fixture.connect(Some("worker-1")).await;
    let root = fixture.connect(Some("root")).await;
    let waiting = connection.clone();
    let waiting = tokio::spawn(async move { waiting.post("/v1/leases", poll("w-1", "q", 60_000)).await });
    let mut client = fixture.grpc("worker-2").await;
    let worker = RegisterWorkerRequest { worker_id: "w-2".to_owned(), ..Default::default() };
    let hello = WorkHello { worker: Some(worker), queues: vec!["q".to_owned()] };
    let (sender, said) = mpsc::channel(1);
    sender.send(WorkRequest { hello: Some(hello), credit: 1, ..Default::default() }).await.unwrap();
    let mut stream = client.work(ReceiverStream::new(said)).await.unwrap().into_inner();
    assert!(in_time(stream.message()).await.unwrap().unwrap().welcome.is_some());
    in_time(async {
        while fixture.served.running.handle.status().await.unwrap().polls < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    fixture.replace_ca(&Authority::new("another"), &root, 401).await;
    assert_eq!(in_time(waiting).await.unwrap().0, 401);
    assert_eq!(in_time(stream.message()).await.unwrap_err().code(), Code::Unauthenticated);
    let (status, told) = connection.get("/readyz").await;
    assert!(status == 401 && detail(&told).contains("no longer trusted"), "{told}");
    // A mistake can be taken back.
    fixture.replace_ca(&fixture.ca, &root, 200).await;
    assert_eq!(connection.get("/readyz").await.0, 200);
}

#[tokio::test]
async fn what_a_certificate_began_ends_when_it_expires() {
    let fixture = Fixture::start().await;
    let files = fixture.ca.issue_until(fixture.path(), "worker-1", SystemTime::now() + BRIEF);
    let connection = connect(&fixture.served, fixture.ca.client(Some(&files))).await;
    let (status, told) = connection.post("/v1/leases", poll("w-1", "q", 60_000)).await;
    assert!(status == 401 && detail(&told).contains("has expired"), "{told}");
    let (status, told) = connection.get("/readyz").await;
    assert!(status == 401 && detail(&told).contains("has expired"), "{told}");
}
