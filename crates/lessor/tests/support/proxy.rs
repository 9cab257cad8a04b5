//! A proxy between clients and a real server that drops the answers that a test selects, and records every request.
//!
//! It speaks as much HTTP/1.1 as our clients and our server do: bodies have a length. A client that hangs up is hung up
//! on at the server too, as proxies do.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Far longer than anything here takes: a test that waits for something that never happens fails by it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What to do with a request.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Pass,
    /// Let the server do it, and lose its answer.
    Lose,
    /// Hang up before the server sees it.
    Refuse,
    /// Hang up on the client, while the server believes that it still waits.
    Strand,
    /// Answer in the server's place, with a status, one more header line and a body.
    Answer(u16, &'static str, String),
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub method: String,
    pub path: String,
    pub body: Vec<u8>,
    head: Vec<u8>,
}

impl Request {
    /// The last segment of the path: leases, heartbeat, complete, fail, release; started, completed.
    pub(crate) fn call(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub(crate) fn is_report(&self) -> bool {
        matches!(self.call(), "complete" | "fail" | "release")
    }

    /// The token that it came with.
    pub(crate) fn bearer(&self) -> Option<String> {
        let head = String::from_utf8_lossy(&self.head);
        let value = head.lines().find_map(|line| line.strip_prefix("authorization: Bearer "));
        value.map(|token| token.trim().to_owned())
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// In the order of arrival, from 1.
    pub number: usize,
    pub request: Request,
    /// Whether the client got an answer, the server's or another.
    pub was_told: bool,
}

type Rule = dyn Fn(&Request, usize) -> Action + Send + Sync;

pub(crate) struct Proxy {
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    server: String,
    rule: Box<Rule>,
    requests: Mutex<usize>,
    exchanges: watch::Sender<Vec<Exchange>>,
}

impl Proxy {
    /// The rule decides on each request, which it sees with its number.
    pub(crate) async fn start(
        server: String,
        rule: impl Fn(&Request, usize) -> Action + Send + Sync + 'static,
    ) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared {
            server,
            rule: Box::new(rule),
            requests: Mutex::new(0),
            exchanges: watch::Sender::new(Vec::new()),
        });
        let serving = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = serving.clone();
                tokio::spawn(async move {
                    // A client that hangs up is an everyday thing here.
                    let _ = shared.serve(client).await;
                });
            }
        });
        Proxy { url, shared }
    }

    /// Where its server is, past it.
    pub(crate) fn server_url(&self) -> String {
        format!("http://{}", self.shared.server)
    }

    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        let mut all = self.shared.exchanges.borrow().clone();
        all.sort_by_key(|exchange| exchange.number);
        all
    }

    pub(crate) fn of_lease(&self, lease_id: &str) -> Vec<Exchange> {
        let part = format!("/{lease_id}/");
        self.exchanges().into_iter().filter(|exchange| exchange.request.path.contains(&part)).collect()
    }

    /// Waits until so many requests of a kind went through.
    pub(crate) async fn until(&self, call: &str, count: usize) {
        let mut exchanges = self.shared.exchanges.subscribe();
        let enough = exchanges.wait_for(|all| self::count(all, call) >= count);
        tokio::time::timeout(PATIENCE, enough).await.expect("it never happened").unwrap();
    }

    pub(crate) fn count(&self, call: &str) -> usize {
        count(&self.shared.exchanges.borrow(), call)
    }
}

fn count(exchanges: &[Exchange], call: &str) -> usize {
    exchanges.iter().filter(|exchange| exchange.request.call() == call).count()
}

impl Shared {
    async fn serve(&self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        loop {
            let (head, body) = read_message(&mut client).await?;
            let line = String::from_utf8_lossy(&head).into_owned();
            let mut parts = line.split(' ');
            let mut part = || parts.next().unwrap_or_default().to_owned();
            let request = Request { method: part(), path: part(), body, head };
            let number = {
                let mut requests = self.requests.lock().unwrap();
                *requests += 1;
                *requests
            };
            let action = (self.rule)(&request, number);
            let mut nothing = [0];
            let answer = match &action {
                Action::Refuse => None,
                Action::Strand => {
                    let (server, request) = (self.server.clone(), request.clone());
                    tokio::spawn(async move { forward(&server, &request).await });
                    None
                }
                Action::Answer(status, header, body) => {
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status} x\r\n{header}\r\ncontent-length: {length}\r\n\r\n");
                    Some([head.as_bytes(), body.as_bytes()].concat())
                }
                Action::Pass | Action::Lose => tokio::select! {
                    answer = forward(&self.server, &request) => answer,
                    _ = client.peek(&mut nothing) => None,
                },
            };
            let answer = answer.filter(|_| !matches!(action, Action::Lose));
            let was_told = answer.is_some();
            let exchange = Exchange { number, request, was_told };
            self.exchanges.send_modify(|exchanges| exchanges.push(exchange));
            match answer {
                Some(answer) => client.write_all(&answer).await?,
                None => return Ok(()),
            }
        }
    }
}

async fn forward(server: &str, request: &Request) -> Option<Vec<u8>> {
    let mut server = TcpStream::connect(server).await.ok()?;
    server.write_all(&request.head).await.ok()?;
    server.write_all(&request.body).await.ok()?;
    let (head, body) = read_message(&mut server).await.ok()?;
    Some([head, body].concat())
}

/// The head, its empty line included, and the body.
async fn read_message(stream: &mut TcpStream) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&head).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    Ok((head, body))
}
