//! A real server over a real coordinator in a directory of its own, and short ways to call it.

#![allow(dead_code)]

#[path = "../../support/nodes.rs"]
pub(crate) mod nodes;

pub(crate) mod bad;
pub(crate) mod callback;
pub(crate) mod certificates;
pub(crate) mod claim;
pub(crate) mod target;

use std::net::{Ipv4Addr, SocketAddr};

use coordinator::Running;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use server::{App, Drained, Limits, Listener, PushOptions, Tls};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The secret of every server in the tests.
pub(crate) const KEY: [u8; 32] = [7; 32];

pub(crate) struct Served {
    pub address: SocketAddr,
    pub client: reqwest::Client,
    pub running: Running,
    pub app: App,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Drained>,
    directory: TempDir,
    pub options: server::Options,
}

/// An answer, read.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub status: u16,
    pub content_type: String,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Served {
    pub(crate) async fn start() -> Served {
        Served::start_with(Limits::default()).await
    }

    pub(crate) async fn start_with(limits: Limits) -> Served {
        Served::start_in(tempfile::tempdir().unwrap(), limits, server::Options::default()).await
    }

    /// A server with TLS; its own client speaks plain HTTP.
    pub(crate) async fn start_tls(limits: Limits, tls: Tls) -> Served {
        let directory = tempfile::tempdir().unwrap();
        Served::start_on(directory, limits, server::Options::default(), Some(tls)).await
    }

    pub(crate) async fn start_tls_with(options: server::Options, tls: Tls) -> Served {
        Served::start_on(tempfile::tempdir().unwrap(), Limits::default(), options, Some(tls)).await
    }

    pub(crate) async fn start_with_options(limits: Limits, options: server::Options) -> Served {
        Served::start_in(tempfile::tempdir().unwrap(), limits, options).await
    }

    /// A server that pushes to targets on this machine.
    pub(crate) async fn start_pushing() -> Served {
        Served::start_pushing_with(PushOptions::default()).await
    }

    pub(crate) async fn start_pushing_with(push: PushOptions) -> Served {
        let push = PushOptions { allow_private_targets: true, ..push };
        let options = server::Options { push, ..server::Options::default() };
        Served::start_in(tempfile::tempdir().unwrap(), Limits::default(), options).await
    }

    async fn start_in(directory: TempDir, limits: Limits, options: server::Options) -> Served {
        Served::start_on(directory, limits, options, None).await
    }

    async fn start_on(
        directory: TempDir,
        limits: Limits,
        options: server::Options,
        tls: Option<Tls>,
    ) -> Served {
        Served::start_at("127.0.0.1:0", directory, limits, options, tls).await
    }

    /// A server that others could reach.
    pub(crate) async fn start_beyond_loopback(options: server::Options) -> Served {
        Served::start_at("0.0.0.0:0", tempfile::tempdir().unwrap(), Limits::default(), options, None).await
    }

    async fn start_at(
        address: &str,
        directory: TempDir,
        limits: Limits,
        options: server::Options,
        tls: Option<Tls>,
    ) -> Served {
        let storage = nodes::open_ledger(directory.path()).await;
        let queue_defaults = server::reapi::queue_defaults();
        let coordinator_options = coordinator::Options { queue_defaults, ..coordinator::Options::default() };
        let start = || coordinator::start(storage, coordinator_options);
        let running = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
        let listeners = nodes::listen(address).await;
        let address = (Ipv4Addr::LOCALHOST, listeners[0].local_addr().unwrap().port()).into();
        let (stop, stopped) = oneshot::channel::<()>();
        let handles = nodes::handles(&running).await;
        let apps: Vec<App> =
            handles.into_iter().map(|handle| App::with_options(handle, KEY, options.clone())).collect();
        let app = apps[0].clone();
        let listener = |tcp| Listener { tls: tls.clone(), ..Listener::from(tcp) };
        let served = listeners.into_iter().map(listener).zip(apps).collect();
        let serving = nodes::serve(served, limits, stopped);
        let client = nodes::http_client();
        Served { address, client, running, app, stop: Some(stop), serving, directory, options }
    }

    pub(crate) fn request(&self, method: &str, path: &str) -> RequestBuilder {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    pub(crate) async fn get(&self, path: &str) -> Told {
        send(self.request("GET", path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Told {
        send(self.request("POST", path).json(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Told {
        send(self.request("PUT", path).json(&body)).await
    }

    /// The body as it is, with the header that says it is JSON.
    pub(crate) async fn raw(&self, method: &str, path: &str, body: impl Into<reqwest::Body>) -> Told {
        send(self.request(method, path).header("content-type", "application/json").body(body)).await
    }

    /// Submits a task and gives its id.
    pub(crate) async fn submit(&self, queue: &str) -> String {
        let told = self.post("/v1/tasks", json!({"queue": queue, "payload": {"n": 1}})).await;
        assert_eq!(told.status, 201, "{told:?}");
        told.text("taskId")
    }

    /// Leases one task, which must be there.
    pub(crate) async fn lease(&self, worker: &str, queue: &str) -> Value {
        let body = json!({"workerId": worker, "queues": [queue], "waitMs": 0});
        let told = self.post("/v1/leases", body).await;
        assert_eq!((told.status, told.body["leases"].as_array().map(Vec::len)), (200, Some(1)), "{told:?}");
        told.body["leases"][0].clone()
    }

    /// Reports under a lease.
    pub(crate) async fn report(&self, lease: &Value, what: &str, body: Value) -> Told {
        self.post(&path(lease, what), body).await
    }

    /// A task as it is shown.
    pub(crate) async fn task(&self, task: &str) -> Value {
        self.get(&format!("/v1/tasks/{task}")).await.body
    }

    /// The task once it is final.
    pub(crate) async fn ended(&self, task: &str) -> Value {
        self.get(&format!("/v1/tasks/{task}?waitMs=60000")).await.body
    }

    /// The newest record's place: it stands still while nothing changes.
    pub(crate) async fn position(&self) -> u64 {
        self.running.handle.status().await.unwrap().position.0
    }

    /// Whether a file of the ledger has this text.
    pub(crate) fn stores(&self, text: &str) -> bool {
        let mut directories = vec![self.directory.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    directories.push(path);
                } else if std::fs::read(path)
                    .unwrap()
                    .windows(text.len())
                    .any(|bytes| bytes == text.as_bytes())
                {
                    return true;
                }
            }
        }
        false
    }

    /// Tells the server to stop, without waiting.
    pub(crate) fn begin_stop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
    }

    /// Drops the server where it stands.
    pub(crate) fn abort(&self) {
        self.serving.abort();
    }

    pub(crate) async fn stopped(self) -> Drained {
        self.stopped_with_directory().await.0
    }

    /// Stops, and starts again on the same directory.
    pub(crate) async fn restarted(self) -> Served {
        let options = self.options.clone();
        self.restarted_with(options).await
    }

    pub(crate) async fn restarted_with(self, options: server::Options) -> Served {
        let (_, directory) = self.stopped_with_directory().await;
        Served::start_in(directory, Limits::default(), options).await
    }

    async fn stopped_with_directory(mut self) -> (Drained, TempDir) {
        self.begin_stop();
        let drained = self.serving.await.unwrap();
        self.running.stop().await.unwrap();
        (drained, self.directory)
    }
}

impl Told {
    pub(crate) fn text(&self, field: &str) -> String {
        self.body[field].as_str().unwrap_or_else(|| panic!("no {field} in {self:?}")).to_owned()
    }

    /// Asserts that this is a problem with a status and a code.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, code: &str) -> &Told {
        assert_eq!((self.status, self.body["code"].as_str()), (status, Some(code)), "{self:?}");
        assert_eq!(self.content_type, "application/problem+json", "{self:?}");
        assert_eq!(self.body["status"], status, "{self:?}");
        assert_eq!(self.body["type"], format!("urn:lessor:problem:{code}"), "{self:?}");
        assert!(self.body["title"].is_string() && self.body["detail"].is_string(), "{self:?}");
        self
    }
}

pub(crate) fn path(lease: &Value, what: &str) -> String {
    format!("/v1/leases/{}/{what}", lease["leaseId"].as_str().unwrap())
}

pub(crate) async fn send(request: RequestBuilder) -> Told {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let content_type = headers.get("content-type").map(|value| value.to_str().unwrap().to_owned());
    let bytes = response.bytes().await.unwrap();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Told { status, content_type: content_type.unwrap_or_default(), headers, body }
}
