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

use server::audit_trail::{self, AuditTrail};
use server::{Limits, Options};

use crate::guarded::Guarded;
use crate::keyed::{channel, execute, with_key};
use crate::support::{Served, send};

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
    let fields = ["audit", "reason", "kind", "id", "method", "path", "request_id"];
    let line = |path: &str| json!(["denied", "forbidden", "key", id, "POST", path, "r-1"]);
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

/// These are refused before anybody is asked who they are.
#[tokio::test]
async fn a_refused_host_and_a_refused_origin_have_their_lines() {
    let guarded = Guarded::start().await;
    for (header, value, path) in [
        ("host", "audited.example", "/v1/tasks/audited-host"),
        ("origin", "https://audited.example", "/v1/tasks/audited-origin/cancel"),
    ] {
        let request = guarded.request(&guarded.admin, "POST", path).header(header, value);
        assert!(matches!(send(request).await.status, 403 | 421), "{header}");
        let lines = lines("path", path);
        assert_eq!(
            values(&lines, &["audit", "who", "from"]),
            [json!(["denied", null, "127.0.0.1"])],
            "{header}"
        );
        assert!(lines[0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
    }
}

#[tokio::test]
async fn an_action_where_nobody_is_authenticated_has_its_line_and_its_place_in_the_trail() {
    capture();
    let directory = tempfile::tempdir().unwrap();
    let trail = AuditTrail::start(directory.path().to_owned(), &[7; 32]).unwrap();
    let options = Options { audit_trail: Some(trail.clone()), ..Options::default() };
    let served = Served::start_with_options(Limits::default(), options).await;
    let path = "/v1/queues/audited-by-nobody";
    let put = served.request("PUT", path).header("x-request-id", "r-2").json(&json!({"maxAttempts": 2}));
    assert_eq!(send(put).await.status, 200);
    assert_eq!(served.get(path).await.status, 200);
    let fields = ["audit", "who", "kind", "from", "method", "path", "status", "request_id"];
    let expected = json!(["allowed", "anonymous", null, "127.0.0.1", "PUT", path, 200, "r-2"]);
    assert_eq!(values(&lines("path", path), &fields), std::slice::from_ref(&expected));
    assert!(trail.close());
    let mut stored = Vec::new();
    audit_trail::lines(directory.path(), |text, _| {
        stored.push(serde_json::from_str::<Value>(text).unwrap());
        Ok(true)
    })
    .unwrap();
    assert_eq!(values(&stored[1..2], &fields), [expected]);
    // The record of the configuration was durable before.
    assert!(stored[1]["position"].as_u64().unwrap() >= 2, "{stored:?}");
    assert_eq!(audit_trail::verify(directory.path(), &[7; 32], &[], None).unwrap().findings, []);
}

/// R55: the line names the program and its run, as far as the caller says.
#[tokio::test]
async fn r55_a_call_of_remote_execution_is_logged_with_its_tool_and_its_invocation() {
    use bazel_remote_apis::build::bazel::remote::execution::v2::{RequestMetadata, ToolDetails};
    use bazel_remote_apis::google::longrunning::DeleteOperationRequest;
    use bazel_remote_apis::google::longrunning::operations_client::OperationsClient;
    use prost::Message;
    let guarded = Guarded::start().await;
    let key = guarded.key("audited-builder", "default", &["builder"]).await;
    let (operation, _stream) = execute(&guarded, &key).await;
    let tool_details = Some(ToolDetails { tool_name: "bazel".into(), tool_version: "8.1".into() });
    let tool_invocation_id = format!("run-7{}", "x".repeat(1_000));
    let metadata = RequestMetadata { tool_details, tool_invocation_id, ..RequestMetadata::default() };
    let mut request = with_key(&key, DeleteOperationRequest { name: operation });
    let value = tonic::metadata::MetadataValue::from_bytes(&metadata.encode_to_vec());
    request.metadata_mut().insert_bin("build.bazel.remote.execution.v2.requestmetadata-bin", value);
    OperationsClient::new(channel(&guarded).await).delete_operation(request).await.unwrap();
    let lines = lines("who", "audited-builder");
    let path = "/google.longrunning.Operations/DeleteOperation";
    assert_eq!(
        values(&lines, &["audit", "path", "status", "tool"]),
        [json!(["allowed", path, 0, "bazel 8.1"])]
    );
    let invocation = lines[0]["invocation_id"].as_str().unwrap();
    assert!(invocation.starts_with("run-7x") && invocation.len() == 128, "{invocation}");
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
