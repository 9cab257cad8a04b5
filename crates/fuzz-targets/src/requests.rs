//! Whole requests to a server in this process: every route of HTTP and every call of gRPC, behind the parsers of their heads.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, Uri, header};
use blobs::{Local, Options as StoreOptions, Store};
use coordinator::Running;
use http_body_util::BodyExt;
use ledger::memory::MemoryStorage;
use prost::Message;
use server::permissions::{CALLS, GRPC};
use server::reapi::{Content, Instances, Results, Settings};
use server::{App, Options};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tower::ServiceExt;
use wire::grpc::{LeaseTaskRequest, RegisterWorkerRequest, SubmitTask, SubmitTasksRequest};

use crate::seeds::{self, texts};

/// Calls that wait are given up after this long.
const PATIENCE: Duration = Duration::from_millis(20);
const MAX_ANSWER_BYTES: usize = 1 << 20;
/// A server is replaced after this many requests, so that its memory stays small.
const MAX_REQUESTS: u32 = 20_000;

struct Served {
    router: Router,
    requests: u32,
    _running: Running,
    _directory: TempDir,
}

static RUNTIME: LazyLock<Option<Runtime>> =
    LazyLock::new(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().ok());
static SERVED: Mutex<Option<Served>> = Mutex::new(None);

/// A request as text: the method and the target, headers, an empty line and the body. No answer is an internal error.
pub(crate) fn http(input: &[u8]) {
    let Some((answer, body)) = parse(input).and_then(send) else { return };
    assert_ne!(answer.status().as_u16(), 500, "{}", String::from_utf8_lossy(&body));
    let is_json = |kind: &HeaderValue| kind.as_bytes().ends_with(b"json");
    if answer.headers().get(header::CONTENT_TYPE).is_some_and(is_json) {
        assert!(serde_json::from_slice::<serde_json::Value>(&body).is_ok(), "an answer is no JSON");
    }
}

fn parse(input: &[u8]) -> Option<Request<Body>> {
    let split = input.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = split.map_or((input, &b""[..]), |at| (&input[..at], &input[at + 2..]));
    let mut lines = std::str::from_utf8(head).ok()?.split('\n');
    let (method, target) = lines.next()?.split_once(' ')?;
    let mut request = Request::new(Body::from(body.to_vec()));
    *request.method_mut() = Method::from_bytes(method.as_bytes()).ok()?;
    *request.uri_mut() = target.parse::<Uri>().ok()?;
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for line in lines {
        let Some((name, value)) = line.split_once(": ") else { continue };
        if let (Ok(name), Ok(value)) = (header::HeaderName::try_from(name), HeaderValue::from_str(value)) {
            request.headers_mut().append(name, value);
        }
    }
    Some(request)
}

pub(crate) fn http_requests() -> Vec<Vec<u8>> {
    let requests = texts([
        "POST /v1/tasks\nlessor-tenant: acme\n\n{\"queue\":\"mail\",\"payload\":{\"to\":\"ada\"},\"priority\":3}",
        "POST /v1/tasks/batch\n\n{\"tasks\":[{\"queue\":\"a\",\"payload\":1},{\"queue\":\"b\",\"payload\":[1.5e3]}]}",
        "GET /v1/tasks?queue=mail&state=WAITING&limit=10&pageToken=x",
        "GET /v1/tasks/018f0000-0000-7000-8000-000000000001?waitMs=5",
        "GET /v1/tasks/018f0000-0000-7000-8000-000000000001/history",
        "POST /v1/tasks/018f0000-0000-7000-8000-000000000001/cancel\n\n{\"reason\":\"no\"}",
        "POST /v1/leases\n\n{\"workerId\":\"w1\",\"queues\":[\"mail\"],\"waitMs\":0,\"maxTasks\":4}",
        "POST /v1/leases/x/heartbeat\n\n{\"workerId\":\"w1\",\"progressPct\":5.5,\"message\":\"m\"}",
        "POST /v1/leases/x/fail\n\n{\"workerId\":\"w1\",\"reason\":\"no\",\"retryable\":false,\"code\":\"x\"}",
        "PUT /v1/queues/mail\n\n{\"leaseMs\":60000,\"push\":{\"url\":\"https://hooks.example.com/a\",\"secret\":\"0123456789abcdef\"}}",
        "POST /v1/keys\n\n{\"name\":\"ci\",\"tenants\":[\"acme\"],\"roles\":[\"submitter\"]}",
        "POST /internal/worker/claim\n\n{\"workerId\":\"w1\",\"waitMs\":0}",
        "POST /v1/tasks/018f0000-0000-7000-8000-000000000001/completed\nauthorization: Bearer a.b.c\n\n{\"attempt\":1,\"workerId\":\"w\",\"outcome\":\"SUCCEEDED\",\"output\":1}",
        "GET /cas/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\nrange: bytes=0-4",
        "PUT /ac/2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824\n\nhello",
        "GET /v1/workers?limit=1",
    ]);
    let first = requests.first().and_then(|request| parse(request)).and_then(send);
    assert_eq!(first.map(|(answer, _)| answer.status().as_u16()), Some(201), "the server serves");
    requests
}

/// The number of a call in the first byte, and its message. No answer is UNKNOWN or INTERNAL.
pub(crate) fn grpc(input: &[u8]) {
    let Some((call, message)) = input.split_first() else { return };
    let calls = grpc_calls();
    let path = calls[usize::from(*call) % calls.len()];
    let mut body = vec![0];
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = Method::POST;
    let Ok(uri) = path.parse::<Uri>() else { panic!("{path} is no path") };
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    let Some((answer, _)) = send(request) else { return };
    let status = answer.headers().get("grpc-status").map(HeaderValue::as_bytes);
    assert!(!matches!(status, Some(b"2" | b"13")), "{path} answers {:?}", answer.headers());
}

pub(crate) fn grpc_requests() -> Vec<Vec<u8>> {
    let task =
        SubmitTask { queue: "mail".into(), payload: bytes::Bytes::from_static(b"{}"), ..Default::default() };
    let submit = SubmitTasksRequest { tasks: vec![task] }.encode_to_vec();
    let register = RegisterWorkerRequest { worker_id: "w".into(), ..Default::default() }.encode_to_vec();
    let lease = LeaseTaskRequest {
        worker_id: "w".into(),
        max_tasks: 1,
        queues: vec!["mail".into()],
        ..Default::default()
    };
    let named = [("SubmitTasks", submit), ("RegisterWorker", register), ("LeaseTask", lease.encode_to_vec())];
    let numbered = grpc_calls().into_iter().enumerate();
    let seed = |(number, path): (usize, &str)| {
        let message = named.iter().find(|(name, _)| path.ends_with(&format!("/{name}")));
        let digests = crate::messages::protobufs();
        let message = message.map_or(&digests[number % digests.len()], |(_, message)| message);
        [&[number as u8][..], message].concat()
    };
    numbered.map(seed).collect()
}

fn grpc_calls() -> Vec<&'static str> {
    CALLS.iter().filter(|call| call.method == GRPC).map(|call| call.path).collect()
}

/// The head of the answer and its body; none if the call waits.
fn send(request: Request<Body>) -> Option<(Response<()>, Vec<u8>)> {
    let runtime = RUNTIME.as_ref()?;
    let router = {
        let mut served = SERVED.lock().unwrap_or_else(PoisonError::into_inner);
        if served.as_ref().is_none_or(|served| served.requests >= MAX_REQUESTS) {
            *served = None;
            *served = runtime.block_on(async { start() });
        }
        let served = served.as_mut()?;
        served.requests += 1;
        served.router.clone()
    };
    runtime.block_on(async {
        let answer = timeout(PATIENCE, router.oneshot(request)).await.ok()?.ok()?;
        let (head, mut body) = answer.into_parts();
        let (mut content, mut head) = (Vec::new(), Response::from_parts(head, ()));
        while let Ok(Some(Ok(frame))) = timeout(PATIENCE, body.frame()).await {
            match frame.into_data() {
                Ok(data) => content.extend_from_slice(&data),
                Err(frame) => head.headers_mut().extend(frame.into_trailers().unwrap_or_default()),
            }
            if content.len() > MAX_ANSWER_BYTES {
                return None;
            }
        }
        Some((head, content))
    })
}

fn start() -> Option<Served> {
    let directory = seeds::directory().ok()?;
    let store_options = StoreOptions { background: false, keep_free_bytes: 0, ..StoreOptions::default() };
    let blobs = Arc::new(Local::new(Store::open(directory.path(), store_options).ok()?));
    let queue_defaults = server::reapi::queue_defaults();
    let options = coordinator::Options { queue_defaults, ..coordinator::Options::default() };
    let running = coordinator::start(MemoryStorage::default().open(), options).ok()?;
    let content = Content {
        blobs: blobs.clone(),
        action_cache: blobs.clone(),
        results: Results::new(blobs),
        settings: Settings::default(),
        instances: Instances::default(),
    };
    let options = Options { content: Some(content), ..Options::default() };
    let router = server::router(App::with_options(running.handle.clone(), [7; 32], options));
    Some(Served { router, requests: 0, _running: running, _directory: directory })
}
