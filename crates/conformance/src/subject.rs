//! The coordinator under test, and the unique names of this run.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use contract_clients::{HttpClient, HttpRequest, HttpResponse, Timeouts, grpc};
use data_encoding::HEXLOWER;
use reqwest::{Method, RequestBuilder};
use serde_json::Value;
use tokio::sync::OnceCell;
use tonic::transport::Channel;
use wire::{DEFAULT_SCOPE_NAME, TENANT_HEADER, WORKSPACE_HEADER};

use crate::Finding;
use crate::answer::Answer;
use crate::target::Target;

const TIMEOUTS: Timeouts = Timeouts { connect: Duration::from_secs(5), call: Duration::from_secs(15) };
const USER_AGENT: &str = concat!("lessor-conformance/", env!("CARGO_PKG_VERSION"));

#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// The URL of the coordinator, or the URLs of its nodes. Each request goes to any of them.
    #[arg(skip)]
    pub urls: Vec<String>,

    /// The tenant to act for
    #[arg(long, value_name = "NAME", env = "LESSOR_TENANT", default_value = DEFAULT_SCOPE_NAME)]
    pub tenant: String,

    /// The tenant's workspace to act in
    #[arg(long, value_name = "NAME", env = "LESSOR_WORKSPACE", default_value = DEFAULT_SCOPE_NAME)]
    pub workspace: String,

    /// The instance of the Remote Execution API to act in
    #[arg(long, value_name = "NAME", default_value = "")]
    pub instance: String,

    /// The prefix of the names of all queues and workers of the run
    #[arg(long, value_name = "TEXT", default_value = "conformance")]
    pub queue_prefix: String,

    /// The address on which the suite receives pushed tasks
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    pub push_listen: String,

    /// The URL at which the coordinator reaches that address [default: http:// and the address]
    #[arg(long, value_name = "URL")]
    pub push_url: Option<String>,
}

impl Options {
    pub fn new(url: impl Into<String>) -> Options {
        Options {
            urls: vec![url.into()],
            tenant: DEFAULT_SCOPE_NAME.to_owned(),
            workspace: DEFAULT_SCOPE_NAME.to_owned(),
            instance: String::new(),
            queue_prefix: "conformance".to_owned(),
            push_listen: "127.0.0.1:0".to_owned(),
            push_url: None,
        }
    }
}

/// No server answers at the URL.
#[derive(Debug, thiserror::Error)]
#[error("no server answers at {url} ({why})")]
pub struct Unreachable {
    pub url: String,
    pub why: String,
}

pub struct Subject {
    pub(crate) options: Options,
    nodes: Vec<Node>,
    /// A random part of all names of this run.
    run: String,
    names: AtomicU32,
    target: OnceCell<Result<Target, String>>,
}

/// One server of the coordinator.
struct Node {
    http: HttpClient,
    channel: Channel,
}

impl Node {
    async fn connect(url: &str) -> Result<Node, Unreachable> {
        let url = url.trim_end_matches('/');
        let unreachable = |why: String| Unreachable { url: url.to_owned(), why };
        let http = HttpClient::new(url, USER_AGENT, TIMEOUTS);
        let http = http.map_err(|error| unreachable(error.to_string()))?;
        let endpoint = grpc::endpoint(url, TIMEOUTS);
        let endpoint = endpoint.map_err(|error| unreachable(error.to_string()))?;
        // A server of gRPC alone need not understand HTTP/1.
        if let Err(error) = http.build(&HttpRequest::get("")).send().await {
            endpoint.connect().await.map_err(|_| unreachable(innermost(&error)))?;
        }
        Ok(Node { http, channel: endpoint.connect_lazy() })
    }
}

impl Subject {
    /// Connects to the coordinator. Fails only if no server answers at one of its URLs.
    ///
    /// # Panics
    ///
    /// Panics if there is no URL.
    pub async fn connect(options: Options) -> Result<Subject, Unreachable> {
        assert!(!options.urls.is_empty(), "a coordinator has a URL");
        let mut nodes = Vec::new();
        for url in &options.urls {
            nodes.push(Node::connect(url).await?);
        }
        let mut random = [0; 6];
        getrandom::fill(&mut random)
            .map_err(|error| Unreachable { url: options.urls[0].clone(), why: error.to_string() })?;
        let run = HEXLOWER.encode(&random);
        Ok(Subject { options, nodes, run, names: AtomicU32::new(0), target: OnceCell::new() })
    }

    /// The node of the next request.
    fn node(&self) -> &Node {
        let random = getrandom::u32().unwrap_or_default();
        &self.nodes[random as usize % self.nodes.len()]
    }

    /// The base URL of the next request.
    pub(crate) fn url(&self) -> &str {
        self.node().http.base_url()
    }

    /// A unique name of a queue, a worker or a key.
    pub(crate) fn name(&self, what: &str) -> String {
        let number = self.names.fetch_add(1, Ordering::Relaxed);
        format!("{}-{what}-{}-{number}", self.options.queue_prefix, self.run)
    }

    pub(crate) fn queue(&self) -> String {
        self.name("queue")
    }

    pub(crate) fn worker(&self) -> String {
        self.name("worker")
    }

    /// The channel of the next call.
    pub(crate) fn channel(&self) -> Channel {
        self.node().channel.clone()
    }

    /// The push target, which listens from the first call on.
    pub(crate) async fn target(&self) -> Result<&Target, Finding> {
        let listen = || Target::listen(&self.options.push_listen, self.options.push_url.as_deref());
        let target =
            self.target.get_or_init(async || listen().await.map_err(|error| error.to_string())).await;
        target.as_ref().map_err(|error| {
            Finding::broken(format!(
                "the suite cannot listen at {} ({error}); see --push-listen",
                self.options.push_listen
            ))
        })
    }

    /// Removes the push targets of the run's queues, so that nothing is pushed to a target that no longer listens. Errors
    /// are ignored: they are no part of any check.
    pub(crate) async fn withdraw(&self) {
        let Some(Ok(target)) = self.target.get() else { return };
        for queue in target.queues() {
            let _ = self.put(&format!("/v1/queues/{queue}"), &serde_json::json!({})).await;
        }
    }

    /// A request in the run's tenant and workspace.
    pub(crate) fn scoped(&self, request: &HttpRequest) -> RequestBuilder {
        self.node()
            .http
            .build(request)
            .header(TENANT_HEADER, &self.options.tenant)
            .header(WORKSPACE_HEADER, &self.options.workspace)
    }

    /// A request that names no tenant and no workspace.
    pub(crate) fn unscoped(&self, method: Method, url: &str) -> RequestBuilder {
        self.nodes[0].http.build_to(method, url)
    }

    /// Makes a call in the run's tenant and workspace.
    pub(crate) async fn call(&self, request: HttpRequest) -> Result<Answer, Finding> {
        self.send(self.scoped(&request)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Finding> {
        self.call(HttpRequest::get(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Answer, Finding> {
        self.call(HttpRequest::post(path, body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Answer, Finding> {
        self.call(HttpRequest::put(path, body)).await
    }

    /// Posts a text that need not be JSON, with the content type of JSON.
    pub(crate) async fn post_text(&self, path: &str, text: &str) -> Result<Answer, Finding> {
        let request = self.scoped(&HttpRequest::post(path, Value::Null));
        self.send(request.header("content-type", "application/json").body(text.to_owned())).await
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Answer, Finding> {
        let request = request.build().map_err(|error| Finding::broken(error.to_string()))?;
        let call = format!("{} {}", request.method(), request.url().path());
        let lost = |error: reqwest::Error| {
            Finding::broken(format!("{call} was not answered: {}", innermost(&error)))
        };
        let HttpResponse { status, headers, text: raw } =
            self.nodes[0].http.send(request).await.map_err(lost)?;
        let body = serde_json::from_str(&raw).unwrap_or_default();
        Ok(Answer { call, status, headers, body, raw })
    }
}

/// The root cause, which says what happened.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}
