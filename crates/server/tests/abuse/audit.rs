//! The audit log: a line for every denial, also inside a call, and for every administrative action, without secrets.

use std::io::Write;
use std::sync::{LazyLock, Mutex, Once, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;

use crate::guarded::Guarded;
use crate::support::send;

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// What all servers of this process logged.
static LINES: LazyLock<Mutex<Vec<u8>>> = LazyLock::new(Mutex::default);

struct Lines;

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LINES.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Captures the audit log of the process. Called before any server is guarded, so that no line is missed.
pub(crate) fn capture() {
    static CAPTURED: Once = Once::new();
    CAPTURED.call_once(|| {
        let layer = tracing_subscriber::fmt::layer().json().with_writer(|| Lines);
        let audit = Targets::new().with_target("audit", LevelFilter::INFO);
        let subscriber = tracing_subscriber::registry().with(audit).with(layer);
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// The lines so far with a value in a field, each as its fields. Tests have names and paths of their own, as all share the log.
fn lines(field: &str, value: &str) -> Vec<Value> {
    let text = String::from_utf8(LINES.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap();
    let fields = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["fields"].take());
    fields.filter(|fields| fields[field] == value).collect()
}

/// The values of some fields of each line.
fn values(lines: &[Value], fields: &[&str]) -> Vec<Value> {
    lines.iter().map(|line| fields.iter().map(|field| line[*field].clone()).collect()).collect()
}

#[tokio::test]
async fn a_denial_inside_a_call_has_its_line() {
    let guarded = Guarded::start().await;
    let key = json!({
        "name": "audited-limits", "tenants": ["default"], "roles": ["worker", "submitter", "operator"],
        "queues": ["mail"], "workerPrefix": "w-",
    });
    let (key, id) = guarded.create(key).await;
    let task = json!({"queue": "other", "payload": 1});
    let poll = json!({"workerId": "x", "queues": ["mail"], "waitMs": 0});
    for (path, body, status) in [
        ("/v1/tasks", task.clone(), 403),
        // One line for a call, however many of its parts are denied.
        ("/v1/tasks/batch", json!({"tasks": [task, task]}), 200),
        ("/v1/leases", poll, 403),
        ("/v1/workers/w/drain", json!({"tenant": "elsewhere"}), 403),
    ] {
        let request = guarded.request(&key, "POST", path).header("x-request-id", "r-1").json(&body);
        assert_eq!(send(request).await.status, status, "{path}");
    }
    let fields = ["audit", "reason", "key_id", "method", "path", "request_id"];
    let line = |path: &str| json!(["denied", "forbidden", id, "POST", path, "r-1"]);
    let expected = ["/v1/tasks", "/v1/tasks/batch", "/v1/leases", "/v1/workers/w/drain"].map(line);
    assert_eq!(values(&lines("who", "audited-limits"), &fields), expected);
}

#[tokio::test]
async fn a_bad_task_token_has_its_line() {
    let guarded = Guarded::start().await;
    let path = "/v1/tasks/01900000-0000-7000-8000-0000000000aa/started";
    let told = guarded.post("no.task.token", path, json!({"attempt": 1, "workerId": "w"})).await;
    assert_eq!(told.status, 401, "{told:?}");
    assert_eq!(
        values(&lines("path", path), &["audit", "reason", "who"]),
        [json!(["denied", "invalid_token", null])]
    );
}

#[tokio::test]
async fn no_line_has_the_id_of_a_lease() {
    let guarded = Guarded::start().await;
    let key = guarded.key("audited-reader", "default", &["reader"]).await;
    let secret = "AQGQAAAAAABwAIAAAAAAAAABAAAAAwAAAAAAAABN0123456789abcdefghij";
    for (method, path) in [
        ("POST", format!("/v1/leases/{secret}/complete")),
        // No route, and a route without this method.
        ("POST", format!("/v1/leases/{secret}/compleet")),
        ("PUT", format!("/v1/leases/{secret}/complete")),
    ] {
        let request = guarded.request(&key, method, &path).json(&json!({"workerId": "w"}));
        assert!(send(request).await.status >= 400, "{path}");
        let unknown = guarded.served.request(method, &path).json(&json!({"workerId": "w"}));
        assert_eq!(send(unknown).await.status, 401, "{path}");
    }
    let denied = lines("who", "audited-reader");
    assert_eq!(
        values(&denied, &["audit", "method", "path"])[0],
        json!(["denied", "POST", "/v1/leases/{leaseId}/complete"])
    );
    assert!(!lines("path", "/v1/leases/{leaseId}").is_empty(), "of the stranger");
    let all = String::from_utf8(LINES.lock().unwrap().clone()).unwrap();
    assert!(!all.contains(&secret[..20]), "a lease id was logged");
}

#[tokio::test]
async fn an_action_has_its_status_also_over_grpc() {
    use bazel_remote_apis::google::longrunning::CancelOperationRequest;
    use bazel_remote_apis::google::longrunning::operations_client::OperationsClient;
    let guarded = Guarded::start().await;
    let key = guarded.key("audited-operator", "default", &["operator"]).await;
    let put = guarded.request(&key, "PUT", "/v1/queues/audited").json(&json!({}));
    assert_eq!(send(put).await.status, 200);
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", guarded.served.address));
    let mut client = OperationsClient::new(channel.unwrap().connect().await.unwrap());
    let name = "operations/01900000-0000-7000-8000-000000000001-abc".to_owned();
    let mut request = tonic::Request::new(CancelOperationRequest { name });
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    let status = client.cancel_operation(request).await.unwrap_err();
    let path = "/google.longrunning.Operations/CancelOperation";
    assert_eq!(
        values(&lines("who", "audited-operator"), &["audit", "method", "path", "status"]),
        [
            json!(["allowed", "PUT", "/v1/queues/audited", 200]),
            json!(["allowed", "gRPC", path, status.code() as i32]),
        ]
    );
    assert_ne!(status.code(), tonic::Code::Ok);
}

/// The order was carried out, and nobody was there for its answer.
#[tokio::test]
async fn a_caller_that_hangs_up_leaves_its_line() {
    let guarded = Guarded::start().await;
    let roles = ["operator", "worker", "submitter"];
    let key = guarded.key("audited-hasty", "default", &roles).await;
    assert_eq!(guarded.post(&key, "/v1/tasks", json!({"queue": "q", "payload": 1})).await.status, 201);
    let poll = json!({"workerId": "w", "queues": ["q"], "waitMs": 0});
    assert_eq!(guarded.post(&key, "/v1/leases", poll).await.body["leases"].as_array().map(Vec::len), Some(1));
    // The worker holds a lease, so the order waits for it.
    let body = json!({"waitMs": 60_000}).to_string();
    let mut caller = TcpStream::connect(guarded.served.address).await.unwrap();
    let head = format!(
        "POST /v1/workers/w/drain HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    caller.write_all(head.as_bytes()).await.unwrap();
    let is_drained = async || {
        let workers = guarded.get(&key, "/v1/workers").await.body;
        workers["workers"][0]["drained"] == json!(true)
    };
    let drained = async {
        while !is_drained().await {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, drained).await.unwrap();
    drop(caller);
    let told = || values(&lines("who", "audited-hasty"), &["audit", "path", "status"]);
    let logged = async {
        while told().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, logged).await.expect("there is no line");
    assert_eq!(told(), [json!(["allowed", "/v1/workers/w/drain", null])]);
}
