//! Calls that wait or move data while their key is revoked: they end with it, and what they waited for is left to others.

use bazel_remote_apis::google::bytestream::byte_stream_client::ByteStreamClient;
use bazel_remote_apis::google::bytestream::{QueryWriteStatusRequest, ReadRequest, WriteRequest};
use bazel_remote_apis::google::longrunning::operations_client::OperationsClient;
use bazel_remote_apis::google::longrunning::{GetOperationRequest, WaitOperationRequest};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{LeaseTaskRequest, RegisterWorkerRequest};

use crate::guarded::Guarded;
use crate::keyed::{channel, digest, endpoint, execute, in_time, with_key};
use crate::peer::Peer;
use crate::support::send;

/// More than a client, its connection and the server hold of a blob that nobody reads.
const HUGE_BYTES: usize = 12 << 20;
/// Large enough for a file of its own, whose growth others can see.
const LARGE_BYTES: usize = 600_000;
/// What a client takes ahead of what it reads.
const WINDOW_BYTES: u32 = 65_535;

/// A key that is about to end: its text and its id.
async fn brief_key(guarded: &Guarded, role: &str) -> (String, String) {
    let tenants = if role == "admin" { json!([]) } else { json!(["default"]) };
    guarded.create(json!({"name": "brief", "tenants": tenants, "roles": [role]})).await
}

async fn revoke(guarded: &Guarded, id: &str) {
    let revoked = send(guarded.request(&guarded.admin, "DELETE", &format!("/v1/keys/{id}"))).await;
    assert_eq!(revoked.status, 200, "{revoked:?}");
}

/// Waits until a poll is waiting.
async fn a_poll_waits(guarded: &Guarded) {
    in_time(async {
        while guarded.served.running.handle.status().await.unwrap().polls == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A task that comes now goes to the next worker.
async fn the_next_task_is_there_for_others(guarded: &Guarded) {
    let task = json!({"queue": "q", "payload": 1});
    assert_eq!(guarded.post(&guarded.admin, "/v1/tasks", task).await.status, 201);
    let poll = json!({"workerId": "other", "queues": ["q"], "waitMs": 0});
    let leased = guarded.post(&guarded.admin, "/v1/leases", poll).await;
    assert_eq!(leased.body["leases"].as_array().map(Vec::len), Some(1), "{leased:?}");
}

#[tokio::test]
async fn a_long_poll_ends_with_its_key_and_takes_no_task() {
    let guarded = Guarded::start().await;
    for (path, poll) in [
        ("/v1/leases", json!({"workerId": "w", "queues": ["q"], "waitMs": 60_000})),
        ("/internal/worker/claim", json!({"worker_id": "w", "streams": ["q"], "max_wait_ms": 60_000})),
    ] {
        let (key, id) = brief_key(&guarded, "worker").await;
        let waiting = tokio::spawn(send(guarded.request(&key, "POST", path).json(&poll)));
        a_poll_waits(&guarded).await;
        revoke(&guarded, &id).await;
        in_time(waiting).await.unwrap().is_problem(401, "unauthenticated");
        the_next_task_is_there_for_others(&guarded).await;
    }
}

#[tokio::test]
async fn a_lease_call_of_grpc_ends_with_its_key_and_takes_no_task() {
    let guarded = Guarded::start().await;
    let (key, id) = brief_key(&guarded, "worker").await;
    let mut client = WorkerSchedulerClient::new(channel(&guarded).await);
    let worker = RegisterWorkerRequest { worker_id: "w".to_owned(), ..Default::default() };
    client.register_worker(with_key(&key, worker)).await.unwrap();
    let lease = LeaseTaskRequest {
        worker_id: "w".to_owned(),
        queues: vec!["q".to_owned()],
        max_tasks: 1,
        timeout_seconds: 60,
        ..Default::default()
    };
    let request = with_key(&key, lease);
    let waiting = tokio::spawn(async move { client.lease_task(request).await });
    a_poll_waits(&guarded).await;
    revoke(&guarded, &id).await;
    assert_eq!(in_time(waiting).await.unwrap().unwrap_err().code(), Code::Unauthenticated);
    the_next_task_is_there_for_others(&guarded).await;
}

#[tokio::test]
async fn waits_for_executions_and_tasks_end_with_their_key() {
    let guarded = Guarded::start().await;
    let made = json!({"name": "brief", "tenants": ["default"], "roles": ["builder", "reader"]});
    let (key, id) = guarded.create(made).await;
    let (name, mut stream) = execute(&guarded, &key).await;
    let task = name.strip_prefix("operations/").and_then(|name| name.rsplit_once('-')).unwrap().0;
    let mut operations = OperationsClient::new(channel(&guarded).await);
    let mut others = operations.clone();
    let operation = WaitOperationRequest { name: name.clone(), timeout: None };
    let path = format!("/v1/tasks/{task}");
    let wait = guarded.request(&key, "GET", &format!("{path}?waitMs=60000"));
    let (operation, told, ()) = in_time(async {
        tokio::join!(operations.wait_operation(with_key(&key, operation)), send(wait), async {
            // What was asked before on the same connection has been admitted, too.
            others.get_operation(with_key(&key, GetOperationRequest { name })).await.unwrap();
            assert_eq!(guarded.get(&key, &path).await.status, 200);
            revoke(&guarded, &id).await;
        })
    })
    .await;
    assert_eq!(operation.unwrap_err().code(), Code::Unauthenticated);
    told.is_problem(401, "unauthenticated");
    assert_eq!(in_time(stream.message()).await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn an_upload_ends_with_its_key() {
    let guarded = Guarded::start().await;
    let (key, id) = brief_key(&guarded, "builder").await;
    let content: Vec<u8> = (0..LARGE_BYTES).map(|n| (n * n / 7) as u8).collect();
    let resource_name = format!("uploads/u/blobs/{}/{LARGE_BYTES}", digest(&content).hash);
    let (first, rest) = content.split_at(LARGE_BYTES / 2);
    let (sender, pieces) = mpsc::channel(1);
    let piece = |data: &[u8], write_offset: usize| WriteRequest {
        resource_name: resource_name.clone(),
        write_offset: write_offset as i64,
        finish_write: write_offset > 0,
        data: data.to_vec(),
    };
    sender.send(piece(first, 0)).await.unwrap();
    let mut client = ByteStreamClient::new(channel(&guarded).await);
    let mut others = client.clone();
    let request = with_key(&key, ReceiverStream::new(pieces));
    let uploading = tokio::spawn(async move { client.write(request).await });
    let mut status = async || {
        let request = QueryWriteStatusRequest { resource_name: resource_name.clone() };
        others.query_write_status(with_key(&guarded.admin, request)).await.unwrap().into_inner()
    };
    in_time(async { while status().await.committed_size == 0 {} }).await;
    revoke(&guarded, &id).await;
    // Nobody may take it any more.
    let _ = sender.send(piece(rest, first.len())).await;
    assert_eq!(in_time(uploading).await.unwrap().unwrap_err().code(), Code::Unauthenticated);
    assert!(!status().await.complete, "the blob did not come to be");
}

/// Begins a request, revokes its key once the server asks for the body, and sends the body then.
async fn with_a_late_body(guarded: &Guarded, role: &str, head: &str, body: &str) -> String {
    let (key, id) = brief_key(guarded, role).await;
    let mut peer = Peer::connect(&guarded.served).await;
    let length = body.len();
    let lines =
        "host: localhost\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-type: application/json";
    let head = format!(
        "{head} HTTP/1.1\r\n{lines}\r\nauthorization: Bearer {key}\r\ncontent-length: {length}\r\n\r\n"
    );
    peer.send(head.as_bytes()).await;
    assert!(peer.hear_head().await.starts_with("HTTP/1.1 100 "));
    revoke(guarded, &id).await;
    peer.send(body.as_bytes()).await;
    peer.hear().await
}

#[tokio::test]
async fn a_body_that_comes_after_the_end_of_its_key_changes_nothing() {
    let guarded = Guarded::start().await;
    let content = "what is cached";
    for path in [format!("/cas/{}", digest(content.as_bytes()).hash), format!("/ac/{}", "0".repeat(64))] {
        let answer = with_a_late_body(&guarded, "cache-writer", &format!("PUT {path}"), content).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
        guarded.get(&guarded.admin, &path).await.is_problem(404, "not_found");
    }
    let key = json!({"name": "heir", "roles": ["admin"]}).to_string();
    let answer = with_a_late_body(&guarded, "admin", "POST /v1/keys", &key).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let keys = guarded.get(&guarded.admin, "/v1/keys").await.body["keys"].to_string();
    assert!(keys.contains("root") && !keys.contains("heir"), "{keys}");
}

#[tokio::test]
async fn a_download_ends_with_its_key() {
    let guarded = Guarded::start().await;
    let content = Bytes::from(vec![7; HUGE_BYTES]);
    let hash = digest(&content).hash;
    let path = format!("/cas/{hash}");
    let put = guarded.request(&guarded.admin, "PUT", &path).body(content).send().await.unwrap();
    assert_eq!(put.status(), 200);

    let (key, id) = brief_key(&guarded, "builder").await;
    let channel = endpoint(&guarded).initial_stream_window_size(WINDOW_BYTES).connect().await.unwrap();
    let resource_name = format!("blobs/{hash}/{HUGE_BYTES}");
    let request = with_key(&key, ReadRequest { resource_name, ..ReadRequest::default() });
    let mut pieces = ByteStreamClient::new(channel).read(request).await.unwrap().into_inner();
    assert!(!in_time(pieces.message()).await.unwrap().unwrap().data.is_empty());
    let request = Request::get(format!("http://{}{path}", guarded.served.address))
        .header("authorization", format!("Bearer {key}"))
        .body(Full::default().boxed())
        .unwrap();
    let mut sender = crate::grpc::connect(&guarded.served).await;
    let mut body = in_time(sender.send_request(request)).await.unwrap().into_body();
    assert!(in_time(body.frame()).await.unwrap().is_ok());

    revoke(&guarded, &id).await;
    let status = in_time(async {
        loop {
            match pieces.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status.code()),
            }
        }
    });
    assert_eq!(status.await, Some(Code::Unauthenticated));
    assert!(in_time(body.collect()).await.is_err(), "the body was cut off");
}

#[tokio::test]
async fn waits_for_workers_and_instances_end_with_their_key() {
    let guarded = Guarded::start().await;
    let task = json!({"queue": "q", "payload": 1});
    assert_eq!(guarded.post(&guarded.admin, "/v1/tasks", task).await.status, 201);
    let poll = json!({"workerId": "w", "queues": ["q"], "waitMs": 0});
    assert_eq!(guarded.post(&guarded.admin, "/v1/leases", poll).await.status, 200);
    for order in ["drain", "stop"] {
        let (key, id) = brief_key(&guarded, "operator").await;
        let path = format!("/v1/workers/w/{order}");
        let waiting =
            tokio::spawn(send(guarded.request(&key, "POST", &path).json(&json!({"waitMs": 60_000}))));
        in_time(async {
            while guarded.get(&guarded.admin, "/v1/workers").await.body["workers"][0]["drained"] != true {}
        })
        .await;
        revoke(&guarded, &id).await;
        in_time(waiting).await.unwrap().is_problem(401, "unauthenticated");
        assert_eq!(guarded.post(&guarded.admin, "/v1/workers/w/resume", json!({})).await.status, 200);
    }
    let (key, id) = brief_key(&guarded, "worker").await;
    let waiting = tokio::spawn(send(guarded.request(&key, "GET", "/v1/instances?known=0&waitMs=60000")));
    let others = guarded.get(&key, "/v1/instances").await;
    assert_eq!(others.status, 200, "{others:?}");
    revoke(&guarded, &id).await;
    in_time(waiting).await.unwrap().is_problem(401, "unauthenticated");
}
