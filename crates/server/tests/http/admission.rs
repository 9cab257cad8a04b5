//! Admission: new clients when all connections are taken, hosts of requests on loopback, and calls of the operator.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use server::{AuthMode, Limits, Options, PushOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{Served, send};

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(30);

/// An HTTP/2 connection that is used once and then only answers pings.
struct Idle {
    sender: SendRequest<Empty<Bytes>>,
    connection: JoinHandle<hyper::Result<()>>,
}

impl Idle {
    async fn connect(served: &Served, last_byte: u8) -> Idle {
        let (sender, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(connect(served, last_byte).await)).await.unwrap();
        let mut idle = Idle { sender, connection: tokio::spawn(connection) };
        assert_eq!(idle.healthz(served).await, Some(200));
        idle
    }

    /// Waits until the server closed it, in whatever way.
    async fn closed(self) {
        let _ = timeout(PATIENCE, self.connection).await.expect("it is still open").unwrap();
    }

    async fn healthz(&mut self, served: &Served) -> Option<u16> {
        let request = hyper::Request::get(format!("http://{}/healthz", served.address));
        let response = self.sender.send_request(request.body(Empty::new()).unwrap()).await.ok()?;
        let status = response.status().as_u16();
        response.into_body().collect().await.ok()?;
        Some(status)
    }
}

/// A connection from 127.0.0.x.
async fn connect(served: &Served, last_byte: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last_byte), 0))).unwrap();
    socket.connect(served.address).await.unwrap()
}

/// What a newcomer is answered.
async fn newcomer(served: &Served, last_byte: u8) -> String {
    let mut stream = connect(served, last_byte).await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("it is not let in").unwrap();
    answer
}

async fn limited_to(max_connections: usize) -> Served {
    Served::start_with(Limits { max_connections, ..Limits::default() }).await
}

/// Connections that only answered pings locked everyone else out.
#[tokio::test]
async fn n11_idle_connections_make_room_for_newcomers() {
    let served = limited_to(2).await;
    let first = Idle::connect(&served, 1).await;
    let second = Idle::connect(&served, 1).await;
    assert!(newcomer(&served, 1).await.starts_with("HTTP/1.1 200"));
    first.closed().await;
    assert!(!second.connection.is_finished(), "one is enough");
}

#[tokio::test]
async fn n11_the_address_that_holds_most_makes_room() {
    let served = limited_to(4).await;
    let mut alone = Idle::connect(&served, 1).await;
    let mut many = Vec::new();
    for _ in 0..3 {
        many.push(Idle::connect(&served, 2).await);
    }
    assert!(newcomer(&served, 3).await.starts_with("HTTP/1.1 200"));
    let oldest = many.remove(0);
    oldest.closed().await;
    assert_eq!(alone.healthz(&served).await, Some(200), "an older connection of another address stays");
}

#[tokio::test]
async fn n11_beyond_the_limit_busy_connections_stay_and_newcomers_wait_their_turn() {
    let served = limited_to(2).await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let body = json!({"workerId": "w", "queues": ["q"], "waitMs": 60_000}).to_string();
        let head =
            format!("POST /v1/leases HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        let mut stream = connect(&served, 1).await;
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        held.push(stream);
    }
    let polls = async {
        while served.running.handle.status().await.unwrap().polls != 2 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, polls).await.expect("it is stuck");
    let mut late = connect(&served, 1).await;
    late.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut byte = [0; 1];
    assert!(timeout(Duration::from_millis(200), late.read(&mut byte)).await.is_err(), "it waits");
    drop(held);
    assert_eq!(
        timeout(PATIENCE, late.read(&mut byte)).await.expect("it is stuck").unwrap(),
        1,
        "then it is served"
    );
}

/// A page of a name that was rebound to loopback could read everything.
#[tokio::test]
async fn on_loopback_only_known_hosts_are_served() {
    let callback_url = Some("https://hooks.internal/base".to_owned());
    let push = PushOptions { callback_url, ..PushOptions::default() };
    let allowed_hosts = vec!["build.internal".to_owned()];
    let options = server::Options { allowed_hosts, push, ..Default::default() };
    let served = Served::start_with_options(Limits::default(), options).await;
    let get = |host: &str| send(served.request("GET", "/v1/queues").header("host", host));
    for host in [
        "127.0.0.1:8980",
        "[::1]",
        "10.1.2.3",
        "localhost",
        "Localhost:1",
        "BUILD.internal:8980",
        "hooks.internal",
    ] {
        assert_eq!(get(host).await.status, 200, "{host}");
    }
    for host in ["evil.example", "evil.example:8980", "localhost.evil.example", "x.build.internal"] {
        let refused = get(host).await;
        refused.is_problem(421, "unknown_host");
        assert!(refused.text("detail").contains("server.allowed_hosts"), "{refused:?}");
    }
    for (host, status) in [("127.0.0.1", "12"), ("evil.example", "7")] {
        let stream = TcpStream::connect(served.address).await.unwrap();
        let (mut sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = hyper::Request::post(format!("http://{host}/some.Service/Call"));
        let request = request.header("content-type", "application/grpc").body(Empty::<Bytes>::new()).unwrap();
        let response = timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap();
        assert_eq!(response.headers()["grpc-status"], status, "{host}");
    }
}

/// There the names of the server are many, and its clients have credentials; a page has none.
#[tokio::test]
async fn beyond_loopback_a_name_is_checked_for_requests_without_a_credential() {
    let allowed_hosts = vec!["build.internal".to_owned()];
    for (auth, with_key) in [(AuthMode::None, 421), (AuthMode::Keys, 401)] {
        let options = Options { allowed_hosts: allowed_hosts.clone(), auth, ..Options::default() };
        let served = Served::start_beyond_loopback(options).await;
        let get = |host: &str, key: bool| {
            let request = served.request("GET", "/healthz").header("host", host);
            send(if key { request.bearer_auth("lsk_some") } else { request })
        };
        for host in ["10.0.0.7:8980", "localhost", "build.internal"] {
            assert_eq!(get(host, false).await.status, 200, "{host}");
        }
        get("evil.example", false).await.is_problem(421, "unknown_host");
        // What nobody verifies is no credential; what somebody does is refused for what it is.
        let request = served.request("GET", "/v1/tasks").header("host", "evil.example");
        assert_eq!(send(request.bearer_auth("lsk_some")).await.status, with_key, "{auth:?}");
    }
}

/// Whoever reached the API could end every task token of every tenant.
#[tokio::test]
async fn a_tenant_does_not_rotate_the_keys_of_task_tokens() {
    let served = Served::start().await;
    for header in ["lessor-tenant", "lessor-workspace"] {
        let rotate = served.request("POST", "/v1/token-keys/rotate").header(header, "acme");
        send(rotate).await.is_problem(403, "operator_only");
    }
    assert_eq!(served.post("/v1/token-keys/rotate", json!({})).await.status, 200, "the operator does");
}
