//! Starts the server in its own process, and a lean HTTP/1.1 client with one connection; measures no-op requests.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use procfs::process::Process;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use worker::executors::Backend;

use super::load::{LoadGenerator, Rate};
use super::percentiles::Percentiles;

/// The longest wait for the server to start.
const MAX_START: Duration = Duration::from_secs(60);

/// `lessor up` on a free port, killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Actions run as plain processes.
    pub(crate) async fn start(directory: &Path) -> Result<Server> {
        Server::start_with(directory, Backend::Host).await
    }

    pub(crate) async fn start_with(directory: &Path, backend: Backend) -> Result<Server> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut child = Command::new(program)
            .args(["up", "--listen", "127.0.0.1:0", "--data"])
            .arg(directory)
            .args(["--backend", backend.name(), "--work-dir"])
            .arg(directory.with_extension("work"))
            .env("LESSOR_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the server")?;
        let stdout = child.stdout.take().context("the server has no output")?;
        let mut first = String::new();
        let mut lines = BufReader::new(stdout);
        tokio::time::timeout(MAX_START, lines.read_line(&mut first))
            .await
            .context("the server did not start")??;
        let address = std::fs::read_to_string(directory.join("listen"))
            .context("the server did not write its address")?;
        // The rest of the banner is read and dropped, so that the server never writes into a closed pipe.
        tokio::spawn(async move {
            let mut line = String::new();
            while lines.read_line(&mut line).await.is_ok_and(|read| read > 0) {
                line.clear();
            }
        });
        Ok(Server { child, address: address.trim().parse()? })
    }

    /// Kills the server and waits until the process is gone.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.child.kill().await.context("cannot stop the server")
    }

    pub(crate) fn process(&self) -> Result<Process> {
        let process = self.child.id().context("the server has ended")?;
        Ok(Process::new(i32::try_from(process)?)?)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn connect(&self) -> Result<Client> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Client { sender, host: self.address.to_string() })
    }
}

pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: String,
}

impl Client {
    pub(crate) async fn get(&mut self, path: &str) -> Result<Bytes> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: Bytes) -> Result<Bytes> {
        self.send(Method::POST, path, body).await
    }

    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.host)
            .header("content-type", "application/json")
            .body(Full::new(body))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            bail!("{path}: {status} {}", String::from_utf8_lossy(&answer));
        }
        Ok(answer)
    }
}

/// The rate of requests that do nothing: the limit of the network stack with the same server and client.
pub(crate) async fn noop_rate(server: &Server, clients: usize, time: Duration) -> Result<Rate> {
    let mut load = LoadGenerator::new(clients);
    for _ in 0..clients {
        let (mut client, done) = (server.connect().await?, load.done.clone());
        load.clients.spawn(async move {
            loop {
                client.get("/healthz").await?;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    load.measure(Some(server.process()?), time).await
}

/// The median time of one no-op request from one client, in milliseconds.
pub(crate) async fn noop_p50_ms(server: &Server, requests: usize) -> Result<f64> {
    let mut client = server.connect().await?;
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        let began = Instant::now();
        client.get("/healthz").await?;
        times.push(began.elapsed());
    }
    Ok(Percentiles::of(times).at_ms(50.0))
}
