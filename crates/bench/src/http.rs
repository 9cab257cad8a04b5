//! Starts the server in its own process, and a lean HTTP/1.1 client with one connection; measures no-op requests.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use credentials::Connector;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use procfs::process::Process;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tower::ServiceExt;
use url::Url;
use worker::executors::Backend;

use super::load::{LoadGenerator, Rate};
use super::percentiles::Percentiles;
use super::postgres::node_configuration;
use super::protection::{Prepared, Protection};

/// The longest wait for the server to start.
const MAX_START: Duration = Duration::from_secs(60);
/// The longest wait for a connection.
const MAX_CONNECT: Duration = Duration::from_secs(10);

/// `lessor up` on a free port, killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    url: Url,
    address: SocketAddr,
    connector: Connector,
}

impl Server {
    /// Actions run as plain processes.
    pub(crate) async fn start(directory: &Path) -> Result<Server> {
        Server::start_with(directory, Backend::Host, Protection::None).await
    }

    pub(crate) async fn start_with(
        directory: &Path,
        backend: Backend,
        protection: Protection,
    ) -> Result<Server> {
        Server::start_publishing(directory, backend, protection, None).await
    }

    /// The same, and tasks are published to streams of this Redis.
    pub(crate) async fn start_publishing(
        directory: &Path,
        backend: Backend,
        protection: Protection,
        redis: Option<&str>,
    ) -> Result<Server> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let prepared = protection.prepare(&program, directory).await?;
        let mut command = Command::new(program);
        command
            .args(["up", "--listen", "127.0.0.1:0", "--data"])
            .arg(directory)
            .args(["--backend", backend.name(), "--work-dir"])
            .arg(directory.with_extension("work"))
            .args(&prepared.server_arguments)
            .args(redis.map(|url| ["--redis-url", url]).into_iter().flatten());
        Server::launch(command, directory, &prepared).await
    }

    /// `lessor serve` with the tables of this configuration, without a worker and without protection.
    pub(crate) async fn start_configured(directory: &Path, tables: &str) -> Result<Server> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let prepared = Protection::None.prepare(&program, directory).await?;
        let file = configuration(directory, tables)?;
        let mut command = Command::new(program);
        command.args(["serve", "--init", "--config"]).arg(file);
        Server::launch(command, directory, &prepared).await
    }

    /// A node whose ledger is in this database.
    pub(crate) async fn start_node(directory: &Path, database: &Url, tables: &str) -> Result<Server> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let prepared = Protection::None.prepare(&program, directory).await?;
        let node = node_configuration(&directory.with_extension("key"), tables)?;
        let file = configuration(directory, &node)?;
        let with_database = |words: &[&str]| {
            let mut command = Command::new(&program);
            command.args(words).arg("--config").arg(&file).env("LESSOR_POSTGRES_URL", database.as_str());
            command
        };
        let made = with_database(&["cluster", "init"]).output().await?;
        ensure!(made.status.success(), "no cluster was made: {}", String::from_utf8_lossy(&made.stderr));
        Server::launch(with_database(&["serve"]), directory, &prepared).await
    }

    async fn launch(mut command: Command, directory: &Path, prepared: &Prepared) -> Result<Server> {
        let mut child = command
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
        let address: SocketAddr = address.trim().parse()?;
        let url = Url::parse(&format!("{}://{address}", prepared.scheme))?;
        let connector = prepared.connector(&url)?;
        Ok(Server { child, url, address, connector })
    }

    /// Kills the server and waits until the process is gone.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.child.kill().await.context("cannot stop the server")
    }

    pub(crate) fn process(&self) -> Result<Process> {
        let process = self.child.id().context("the server has ended")?;
        Ok(Process::new(i32::try_from(process)?)?)
    }

    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// How clients connect to the server.
    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn connect(&self) -> Result<Client> {
        let sender = if self.url.scheme() == "https" {
            let connector = self.connector.http(MAX_CONNECT)?;
            let stream = connector.oneshot(self.url.as_str().parse()?).await;
            let stream = stream.map_err(|error| anyhow!("cannot connect: {error}"))?;
            let (sender, connection) = handshake(stream).await?;
            tokio::spawn(connection);
            sender
        } else {
            plain(self.address).await?
        };
        let host = HeaderValue::try_from(self.address.to_string())?;
        let authorization = self.connector.authorization().map(HeaderValue::try_from).transpose()?;
        Ok(Client { sender, host, authorization, tenant: None })
    }
}

/// Writes the configuration of a server with this data directory, and more tables of it.
fn configuration(directory: &Path, tables: &str) -> Result<PathBuf> {
    let file = directory.with_extension("toml");
    let data = directory.to_str().context("the directory has no name in UTF-8")?;
    let address = "[server]\naddress = \"127.0.0.1:0\"\n";
    std::fs::write(&file, format!("{address}[data]\ndir = {}\n{tables}", serde_json::to_string(data)?))?;
    Ok(file)
}

pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
    authorization: Option<HeaderValue>,
    /// The default tenant if there is none.
    tenant: Option<HeaderValue>,
}

async fn plain(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}

impl Client {
    /// A connection to a server without protection whose requests name a tenant.
    pub(crate) async fn connect(address: SocketAddr, tenant: &'static str) -> Result<Client> {
        let host = HeaderValue::try_from(address.to_string())?;
        let tenant = Some(HeaderValue::from_static(tenant));
        Ok(Client { sender: plain(address).await?, host, authorization: None, tenant })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Bytes> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    pub(crate) async fn post(&mut self, path: &str, body: Bytes) -> Result<Bytes> {
        self.send(Method::POST, path, body).await
    }

    async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        let (status, answer) = self.ask(method, path, body).await?;
        if !status.is_success() {
            bail!("{path}: {status} {}", String::from_utf8_lossy(&answer));
        }
        Ok(answer)
    }

    /// The answer to a request, whatever it says.
    pub(crate) async fn ask(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes)> {
        let mut request = Request::builder().method(method).uri(path).body(Full::new(body))?;
        let headers = request.headers_mut();
        headers.insert(HOST, self.host.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some(tenant) = &self.tenant {
            headers.insert(wire::TENANT_HEADER, tenant.clone());
        }
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        Ok((status, response.into_body().collect().await?.to_bytes()))
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
