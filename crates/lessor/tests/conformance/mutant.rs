//! A coordinator that breaks its contract in one way: a proxy before a real one that alters its replies.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// What was asked of the coordinator, or what it pushed.
pub(crate) struct Call {
    pub method: Method,
    pub path: String,
    pub body: Value,
}

impl Call {
    /// Whether the last segment of the path is this.
    pub(crate) fn is(&self, call: &str) -> bool {
        self.path.rsplit('/').next() == Some(call)
    }

    /// Whether a task was pushed.
    pub(crate) fn is_push(&self) -> bool {
        self.path.starts_with(PUSHED)
    }
}

/// The reply that the suite gets; for a push, the envelope.
pub(crate) struct Reply {
    pub status: u16,
    pub body: Value,
}

pub(crate) type Fault = Arc<dyn Fn(&Call, &mut Reply) + Send + Sync>;

/// Below this path the proxy takes what is pushed to the suite; the rest of the path says where the suite listens.
const PUSHED: &str = "/pushed/";

#[derive(Clone)]
struct Proxy {
    server: String,
    own: String,
    fault: Fault,
    /// Alters how a queue is configured.
    config: fn(&mut Value),
    http: reqwest::Client,
}

/// Starts the coordinator before which the fault lies; its address.
pub(crate) async fn start(server: &str, fault: impl Fn(&Call, &mut Reply) + Send + Sync + 'static) -> String {
    start_with(server, fault, |_| (), |_| Router::new()).await
}

/// Starts a coordinator that does not take the configuration of its queues as it is sent.
pub(crate) async fn start_misconfigured(server: &str, config: fn(&mut Value)) -> String {
    start_with(server, |_, _| (), config, |_| Router::new()).await
}

/// The same, with both kinds of faults, and routes of its own besides.
pub(crate) async fn start_with(
    server: &str,
    fault: impl Fn(&Call, &mut Reply) + Send + Sync + 'static,
    config: fn(&mut Value),
    routes: impl FnOnce(&str) -> Router,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = format!("http://{}", listener.local_addr().unwrap());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let proxy = Proxy { server: server.to_owned(), own: own.clone(), fault: Arc::new(fault), config, http };
    let router = routes(server).fallback_service(Router::new().fallback(forward).with_state(proxy));
    tokio::spawn(async move { axum::serve(listener, router).await });
    own
}

async fn forward(
    State(proxy): State<Proxy>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let call = Call {
        method: method.clone(),
        path: uri.path().to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
    };
    match call.path.strip_prefix(PUSHED) {
        Some(suite) => proxy.push(&call, suite, headers).await,
        None => proxy.ask(&call, &uri, headers, body).await,
    }
}

impl Proxy {
    async fn ask(&self, call: &Call, uri: &Uri, mut headers: HeaderMap, body: Bytes) -> Response<Body> {
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        let url = format!("{}{}", self.server, uri.path_and_query().unwrap());
        let body =
            if call.method == Method::PUT { Bytes::from(self.configuration(call).to_string()) } else { body };
        let request = self.http.request(call.method.clone(), url).headers(headers).body(body);
        let answer = request.send().await.unwrap();
        let kind = answer.headers().get(header::CONTENT_TYPE).cloned();
        let status = answer.status().as_u16();
        let body = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default();
        let mut reply = Reply { status, body };
        (self.fault)(call, &mut reply);
        let mut response = Response::builder().status(reply.status);
        if let Some(kind) = kind {
            response = response.header(header::CONTENT_TYPE, kind);
        }
        response.body(Body::from(reply.body.to_string())).unwrap()
    }

    /// The configuration of a queue: its tasks come by here on their way to the suite. Signed ones go straight, because
    /// they could not be altered unnoticed.
    fn configuration(&self, call: &Call) -> Value {
        let mut config = call.body.clone();
        (self.config)(&mut config);
        let url = config["push"]["url"].as_str().and_then(|url| url.strip_prefix("http://"));
        if let Some(suite) = url.filter(|_| config["push"].get("secret").is_none()) {
            config["push"]["url"] = json!(format!("{}{PUSHED}{suite}", self.own));
        }
        config
    }

    /// The worker calls back by here too.
    async fn push(&self, call: &Call, suite: &str, mut headers: HeaderMap) -> Response<Body> {
        headers.remove(header::HOST);
        headers.remove(header::CONTENT_LENGTH);
        let mut reply = Reply { status: 0, body: call.body.clone() };
        reply.body["callbackBaseUrl"] = json!(self.own);
        (self.fault)(call, &mut reply);
        let request = self.http.post(format!("http://{suite}")).headers(headers);
        let answer = request.body(reply.body.to_string()).send().await.unwrap();
        Response::builder().status(answer.status()).body(Body::empty()).unwrap()
    }
}

/// Makes any refusal with this status an answer that accepts.
pub(crate) fn accept(reply: &mut Reply, status: u16, body: Value) {
    if reply.status == status {
        *reply = Reply { status: 200, body };
    }
}

pub(crate) fn forget(reply: &mut Reply, field: &str) {
    if let Some(fields) = reply.body.as_object_mut() {
        fields.remove(field);
    }
}

/// Sets the field where it is.
pub(crate) fn set(reply: &mut Reply, field: &str, value: impl Into<Value>) {
    if let Some(field) = reply.body.get_mut(field) {
        *field = value.into();
    }
}
