//! W8: completions of executions whose outputs are not in the content store. A worker could commit a result that no client
//! could ever fetch.

use std::sync::Arc;
use std::time::Duration;

use authority::command::LeaseTasks;
use authority::{Contract, Scope};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, Directory, FileNode, OutputDirectory, OutputFile, Tree,
};
use prost::Message;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status};
use tonic_types::StatusExt;
use wire::grpc::{
    HeartbeatRequest, LeasedTask, RegisterWorkerRequest, TaskStatus, UpdateTaskStatusRequest, Verdict,
    WorkHello, WorkRequest,
};

use crate::support::{Served, Waiting, Worker, ask, digest, in_time};

fn result() -> ActionResult {
    let file = OutputFile { path: "out".into(), digest: Some(digest(b"out")), ..OutputFile::default() };
    ActionResult { output_files: vec![file], stdout_digest: Some(digest(b"said")), ..ActionResult::default() }
}

async fn begun(served: &Served, command: &str) -> (Waiting, Worker, LeasedTask) {
    let action = served.action(&[command]).await;
    let waiting = served.execute(ask(&action)).await.unwrap();
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    (waiting, worker, task)
}

fn complete(result: &ActionResult) -> impl Fn(&mut UpdateTaskStatusRequest) {
    move |report| {
        report.status = TaskStatus::Completed.into();
        report.result = Some(result.clone());
    }
}

/// The blobs that the answer to a report says are missing.
#[track_caller]
fn missing(answer: Result<impl std::fmt::Debug, Status>) -> Vec<String> {
    let status = answer.unwrap_err();
    let details = status.get_error_details();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert_eq!(details.error_info().unwrap().reason, "outputs_missing");
    assert!(!details.error_info().unwrap().metadata.contains_key("verdict"), "nothing was decided");
    let violations = &details.precondition_failure().unwrap().violations;
    let mut subjects: Vec<_> = violations.iter().map(|violation| violation.subject.clone()).collect();
    subjects.sort_unstable();
    subjects
}

fn subject(bytes: &[u8]) -> String {
    let digest = digest(bytes);
    format!("blobs/{}/{}", digest.hash, digest.size_bytes)
}

fn sorted(contents: &[&[u8]]) -> Vec<String> {
    let mut subjects: Vec<_> = contents.iter().map(|bytes| subject(bytes)).collect();
    subjects.sort_unstable();
    subjects
}

#[tokio::test]
async fn w8_an_execution_is_committed_when_its_outputs_are_in_the_store() {
    let served = Served::start().await;
    let (waiting, mut worker, task) = begun(&served, "true").await;
    let refused = worker.try_report(&task, complete(&result())).await;
    assert_eq!(missing(refused), sorted(&[b"out", b"said"]));
    served.upload(&[b"out"]).await;
    let refused = worker.try_report(&task, complete(&result())).await;
    assert_eq!(missing(refused), sorted(&[b"said"]));
    served.upload(&[b"said"]).await;
    let answer = worker.try_report(&task, complete(&result())).await.unwrap();
    assert_eq!(answer.verdict(), Verdict::Committed);
    assert_eq!(waiting.response().await.result.unwrap().output_files, result().output_files);
    // The recorded verdict stands, whatever became of the outputs.
    let served = served.restart_without_content().await;
    let mut worker = served.worker("w").await;
    let again = worker.try_report(&task, complete(&result())).await.unwrap();
    assert_eq!(again.verdict(), Verdict::Committed);
    served.stop().await;
}

#[tokio::test]
async fn w8_the_files_of_an_output_tree_are_outputs() {
    let served = Served::start().await;
    let (_waiting, mut worker, task) = begun(&served, "true").await;
    let directory = |content: &[u8]| {
        let file = FileNode { name: "f".into(), digest: Some(digest(content)), ..FileNode::default() };
        Directory { files: vec![file], ..Directory::default() }
    };
    let tree = Tree { root: Some(directory(b"root")), children: vec![directory(b"child")] }.encode_to_vec();
    let output = OutputDirectory { tree_digest: Some(digest(&tree)), ..OutputDirectory::default() };
    let result = ActionResult { output_directories: vec![output], ..ActionResult::default() };
    let refused = worker.try_report(&task, complete(&result)).await;
    assert_eq!(missing(refused), sorted(&[&tree]), "nobody knows what is in it");
    served.upload(&[&tree, b"root"]).await;
    let refused = worker.try_report(&task, complete(&result)).await;
    assert_eq!(missing(refused), sorted(&[b"child"]));
    served.upload(&[b"child"]).await;
    assert_eq!(worker.try_report(&task, complete(&result)).await.unwrap().verdict(), Verdict::Committed);
    served.stop().await;
}

#[tokio::test]
async fn w8_a_list_of_missing_outputs_is_bounded() {
    let served = Served::start().await;
    let (_waiting, mut worker, task) = begun(&served, "true").await;
    let file = |n: usize| {
        let digest = Some(digest(n.to_string().as_bytes()));
        OutputFile { path: n.to_string(), digest, ..OutputFile::default() }
    };
    let result = ActionResult { output_files: (0..1_000).map(file).collect(), ..ActionResult::default() };
    let refused = worker.try_report(&task, complete(&result)).await;
    assert!(refused.as_ref().unwrap_err().message().starts_with("1000 of"), "{refused:?}");
    assert_eq!(missing(refused).len(), 32);
    served.stop().await;
}

async fn post(served: &Served, path: &str, body: Value) -> (u16, Value) {
    post_with(served, path, "", body).await
}

/// With a task token, which only the callback contract reads.
async fn post_with(served: &Served, path: &str, token: &str, body: Value) -> (u16, Value) {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.post(format!("http://{}{path}", served.address)).bearer_auth(token).json(&body);
    let response = in_time(request.send()).await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn w8_every_http_contract_checks_the_outputs() {
    let served = Served::start().await;
    let recorded = json!({"exitCode": 0, "actionResult": STANDARD.encode(result().encode_to_vec())});
    for (n, contract) in ["native", "claim"].into_iter().enumerate() {
        // One output is another in each round, so that it is missing again.
        let content = contract.as_bytes();
        let mut result = result();
        result.output_files[0].digest = Some(digest(content));
        let recorded = json!({"exitCode": 0, "actionResult": STANDARD.encode(result.encode_to_vec())});
        let (_waiting, _, task) = begun(&served, contract).await;
        let (path, body) = if contract == "native" {
            let path = format!("/v1/leases/{}/complete", task.lease_id);
            (path, json!({"workerId": "w", "result": recorded}))
        } else {
            let body = json!({
                "worker_id": "w", "job_id": task.task_id, "attempt_id": format!("{}:1", task.task_id),
                "lease_token": task.lease_id, "result": recorded,
            });
            ("/internal/worker/complete".to_owned(), body)
        };
        let (status, problem) = post(&served, &path, body.clone()).await;
        assert_eq!((status, &problem["code"]), (424, &json!("outputs_missing")), "{contract}: {problem}");
        assert_eq!(problem["verdict"], Value::Null, "{problem}");
        let named = problem["digests"].as_array().unwrap();
        assert_eq!(named.len(), 2 - n, "{problem}");
        assert_eq!(problem["ack"], if contract == "claim" { json!(false) } else { Value::Null });
        served.upload(&[content, b"said"]).await;
        let (status, accepted) = post(&served, &path, body).await;
        assert_eq!(status, 200, "{accepted}");
    }
    let mut result = result();
    result.output_files[0].digest = Some(digest(b"callback"));
    let output = json!({"exitCode": 0, "actionResult": STANDARD.encode(result.encode_to_vec())});
    let action = served.action(&["callback"]).await;
    let _waiting = served.execute(ask(&action)).await.unwrap();
    let lease = LeaseTasks {
        scope: Scope { tenant: "default".into(), workspace: "default".into() },
        worker: "push:exec".into(),
        session: None,
        queues: vec!["exec".into()],
        properties: Arc::default(),
        max_tasks: 1,
        request: None,
        contract: Contract::Callbacks,
    };
    let grants = served.running.handle.lease(lease, Duration::from_secs(30)).await.unwrap();
    let envelope = server::task_envelope(&served.app, &grants[0], "http://127.0.0.1").await.unwrap();
    let path = format!("/v1/tasks/{}/completed", envelope.task_id);
    let body = json!({"attempt": 1, "workerId": "w", "outcome": "SUCCEEDED", "output": output});
    let (status, refused) = post_with(&served, &path, &envelope.task_token, body.clone()).await;
    assert_eq!((status, &refused["error"]), (424, &json!("outputs_missing")), "{refused}");
    assert_eq!(refused["digests"].as_array().unwrap().len(), 1, "{refused}");
    served.upload(&[b"callback"]).await;
    let (status, accepted) = post_with(&served, &path, &envelope.task_token, body).await;
    assert_eq!(status, 200, "{accepted}");
    // A task of another queue is no execution, whatever its result looks like.
    post(&served, "/v1/tasks", json!({"queue": "q", "payload": 1})).await;
    let (_, leased) = post(&served, "/v1/leases", json!({"workerId": "v", "queues": ["q"]})).await;
    let lease_id = leased["leases"][0]["leaseId"].as_str().unwrap();
    let body = json!({"workerId": "v", "result": recorded});
    let (status, accepted) = post(&served, &format!("/v1/leases/{lease_id}/complete"), body).await;
    assert_eq!((status, &accepted["verdict"]), (200, &json!("COMMITTED")), "{accepted}");
    served.stop().await;
}

#[tokio::test]
async fn w8_a_report_in_a_stream_is_answered_without_a_verdict_and_may_be_repeated() {
    let served = Served::start().await;
    let (_waiting, worker, task) = begun(&served, "true").await;
    let (to, receiver) = mpsc::channel(8);
    let registration =
        RegisterWorkerRequest { worker_id: "w".to_owned(), ..RegisterWorkerRequest::default() };
    let hello = WorkHello { worker: Some(registration), ..WorkHello::default() };
    to.send(WorkRequest { hello: Some(hello), ..WorkRequest::default() }).await.unwrap();
    let mut client = worker.client.clone();
    let mut from = client.work(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    assert!(in_time(from.message()).await.unwrap().unwrap().welcome.is_some());
    let mut report =
        UpdateTaskStatusRequest { lease_id: task.lease_id.clone(), ..UpdateTaskStatusRequest::default() };
    complete(&result())(&mut report);
    for (upload, verdict) in [(false, Verdict::Unspecified), (true, Verdict::Committed)] {
        if upload {
            served.upload(&[b"out", b"said"]).await;
        }
        to.send(WorkRequest { reports: vec![report.clone()], ..WorkRequest::default() }).await.unwrap();
        let answer = in_time(from.message()).await.unwrap().unwrap().reports.remove(0);
        assert_eq!(answer.answer.unwrap().verdict(), verdict);
        let problem = answer.problem.unwrap_or_default();
        assert_eq!(
            (problem.code.as_str(), problem.digests.len()),
            if upload { ("", 0) } else { ("outputs_missing", 2) }
        );
    }
    served.stop().await;
}

/// A worker of the plan that ignores the answer would otherwise keep the task forever by being alive.
#[tokio::test]
async fn w8_heartbeats_without_lease_ids_do_not_extend_a_lease_whose_completion_lacked_outputs() {
    let served = Served::start().await;
    let (_waiting, mut worker, task) = begun(&served, "true").await;
    let action = served.action(&["false"]).await;
    let _other_waiting = served.execute(ask(&action)).await.unwrap();
    let other = worker.lease().await;
    let mut client = worker.client.clone();
    let mut extended = async || -> Vec<String> {
        let beat = HeartbeatRequest { worker_id: "w".to_owned(), ..HeartbeatRequest::default() };
        let leases = client.report_heartbeat(beat).await.unwrap().into_inner().leases;
        leases.into_iter().map(|lease| lease.task_id).collect()
    };
    assert_eq!(extended().await.len(), 2);
    // A completion that nobody can read is refused as well, and its worker may not know what to do about it.
    let mut unreadable = result();
    unreadable.output_files[0].digest = None;
    let refused = worker.try_report(&task, complete(&unreadable)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert_eq!(extended().await, std::slice::from_ref(&other.task_id));
    missing(worker.try_report(&task, complete(&result())).await);
    assert_eq!(extended().await, std::slice::from_ref(&other.task_id));
    // With its id the lease lives on, so a worker that uploads has time.
    served.upload(&[b"out", b"said"]).await;
    assert_eq!(worker.try_report(&task, complete(&result())).await.unwrap().verdict(), Verdict::Committed);
    served.stop().await;
}

/// The late report cleared the note that the completion under the current lease was refused, so that heartbeats extended the
/// lease again.
#[tokio::test]
async fn w8_a_late_report_of_an_earlier_attempt_does_not_revive_a_lease_whose_completion_lacked_outputs() {
    let served = Served::start().await;
    let (_waiting, mut worker, first) = begun(&served, "true").await;
    let released = worker.try_report(&first, |report| report.release = true).await.unwrap();
    assert_eq!(released.task_state(), wire::grpc::TaskState::Waiting);
    let second = worker.lease().await;
    missing(worker.try_report(&second, complete(&result())).await);
    served.upload(&[b"late"]).await;
    let file = OutputFile { path: "out".into(), digest: Some(digest(b"late")), ..OutputFile::default() };
    let late = ActionResult { output_files: vec![file], ..ActionResult::default() };
    let answer = worker.try_report(&first, complete(&late)).await.unwrap();
    assert_eq!(answer.verdict(), Verdict::Cancelled);
    let beat = HeartbeatRequest { worker_id: "w".to_owned(), ..HeartbeatRequest::default() };
    let told = worker.client.report_heartbeat(beat).await.unwrap().into_inner();
    assert!(told.leases.is_empty(), "{told:?}");
    served.stop().await;
}

/// A name with another size is another blob, which is not there: nothing is committed that a client could not read.
#[tokio::test]
async fn w9_an_output_of_another_size_than_its_content_is_missing() {
    let served = Served::start().await;
    let (waiting, mut worker, task) = begun(&served, "true").await;
    served.upload(&[b"out", b"said"]).await;
    for wrong_size in [0, 2, 4, 1 << 40] {
        let mut lying = result();
        lying.output_files[0].digest.as_mut().unwrap().size_bytes = wrong_size;
        let named = format!("blobs/{}/{wrong_size}", digest(b"out").hash);
        assert_eq!(missing(worker.try_report(&task, complete(&lying)).await), [named]);
    }
    let mut lying = result();
    lying.output_files[0].digest.as_mut().unwrap().size_bytes = -1;
    let refused = worker.try_report(&task, complete(&lying)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused:?}");
    assert_eq!(worker.try_report(&task, complete(&result())).await.unwrap().verdict(), Verdict::Committed);
    assert_eq!(waiting.response().await.result.unwrap().output_files, result().output_files);
    served.stop().await;
}

#[tokio::test]
async fn w8_outputs_are_checked_after_a_restart_too() {
    let served = Served::start().await;
    let (waiting, worker, task) = begun(&served, "true").await;
    drop((waiting, worker));
    let served = served.restart().await;
    // A report needs no registration; a worker that registers first has started anew and holds nothing.
    let mut worker = served.unregistered_worker("w").await;
    missing(worker.try_report(&task, complete(&result())).await);
    served.upload(&[b"out", b"said"]).await;
    assert_eq!(worker.try_report(&task, complete(&result())).await.unwrap().verdict(), Verdict::Committed);
    served.stop().await;
}
