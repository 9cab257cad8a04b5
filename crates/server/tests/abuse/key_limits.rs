//! The limits of a key hold on every call of gRPC: its queues, also for leases that are held already, and the names of its
//! workers. A worker's name alone opens nothing.

use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{Digest, ExecuteRequest};
use bazel_remote_apis::google::longrunning::operations_client::OperationsClient;
use bazel_remote_apis::google::longrunning::{CancelOperationRequest, DeleteOperationRequest};
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    HeartbeatRequest, LeaseHeartbeat, LeaseTaskRequest, LeasedTask, RegisterWorkerRequest, SubmitTask,
    SubmitTasksRequest, TaskStatus, UnregisterWorkerRequest, UpdateTaskStatusRequest, Verdict, WorkHello,
    WorkRequest,
};

use crate::guarded::Guarded;
use crate::keyed::{channel, execute, in_time, with_key};

type Client = WorkerSchedulerClient<Channel>;

pub(crate) fn code<T>(answer: Result<Response<T>, Status>) -> Code {
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

pub(crate) fn hello(worker: &str) -> RegisterWorkerRequest {
    RegisterWorkerRequest { worker_id: worker.to_owned(), ..Default::default() }
}

pub(crate) fn leave(worker: &str) -> UnregisterWorkerRequest {
    UnregisterWorkerRequest { worker_id: worker.to_owned(), ..Default::default() }
}

pub(crate) fn beat(worker: &str) -> HeartbeatRequest {
    HeartbeatRequest { worker_id: worker.to_owned(), ..Default::default() }
}

pub(crate) fn poll(worker: &str, queue: &str) -> LeaseTaskRequest {
    LeaseTaskRequest {
        worker_id: worker.to_owned(),
        queues: vec![queue.to_owned()],
        max_tasks: 1,
        ..Default::default()
    }
}

/// A report that a task is done, by the name of its worker only.
pub(crate) fn done(worker: &str, task: &LeasedTask) -> UpdateTaskStatusRequest {
    UpdateTaskStatusRequest {
        worker_id: worker.to_owned(),
        task_id: task.task_id.clone(),
        status: TaskStatus::Completed.into(),
        result_json: b"1".to_vec().into(),
        ..Default::default()
    }
}

/// A task of the queue `other` that the worker `exec-7` holds, obtained over gRPC with a key for that queue.
struct Held {
    guarded: Guarded,
    client: Client,
    owner: String,
    task: LeasedTask,
}

async fn worker_key(guarded: &Guarded, name: &str, queue: &str) -> String {
    let key = json!({"name": name, "tenants": ["default"], "roles": ["worker"], "queues": [queue]});
    guarded.create(key).await.0
}

async fn held() -> Held {
    let guarded = Guarded::start().await;
    let owner = worker_key(&guarded, "owner", "other").await;
    let mut client = Client::new(channel(&guarded).await);
    let task = guarded.post(&guarded.admin, "/v1/tasks", json!({"queue": "other", "payload": 1})).await;
    assert_eq!(task.status, 201, "{task:?}");
    client.register_worker(with_key(&owner, hello("exec-7"))).await.unwrap();
    let leased = client.lease_task(with_key(&owner, poll("exec-7", "other"))).await.unwrap().into_inner();
    let task = leased.tasks.into_iter().next().unwrap();
    Held { guarded, client, owner, task }
}

/// Its heartbeat by the worker's name named all leases of the worker, with which it could report as the worker.
#[tokio::test]
async fn a_key_of_another_queue_learns_and_ends_no_lease_of_a_worker_whose_name_it_knows() {
    let Held { guarded, mut client, owner, task } = held().await;
    let thief = worker_key(&guarded, "thief", "mail").await;
    assert_eq!(code(client.report_heartbeat(with_key(&thief, beat("exec-7"))).await), Code::PermissionDenied);
    assert_eq!(code(client.register_worker(with_key(&thief, hello("exec-7"))).await), Code::PermissionDenied);
    let again = RegisterWorkerRequest { session_id: "mine".to_owned(), ..hello("exec-7") };
    let refused = client.register_worker(with_key(&thief, again)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("is registered by another identity"), "{refused:?}");
    assert_eq!(
        code(client.unregister_worker(with_key(&thief, leave("exec-7"))).await),
        Code::PermissionDenied
    );
    let forged = client.update_task_status(with_key(&thief, done("exec-7", &task))).await.unwrap_err();
    assert_eq!(forged.code(), Code::PermissionDenied);
    assert!(forged.message().contains("is registered by another identity"), "{forged:?}");
    // The lease is still its owner's.
    let told = client.report_heartbeat(with_key(&owner, beat("exec-7"))).await.unwrap().into_inner();
    let ids: Vec<_> = told.leases.iter().map(|status| (&status.lease_id, status.lost)).collect();
    assert_eq!(ids, [(&task.lease_id, false)]);
    let answer =
        client.update_task_status(with_key(&owner, done("exec-7", &task))).await.unwrap().into_inner();
    assert_eq!(answer.verdict(), Verdict::Committed);
    // Once its worker has left, the name is free.
    assert_eq!(code(client.register_worker(with_key(&thief, hello("exec-7"))).await), Code::PermissionDenied);
    assert_eq!(code(client.unregister_worker(with_key(&owner, leave("exec-7"))).await), Code::Ok);
    assert_eq!(code(client.register_worker(with_key(&thief, hello("exec-7"))).await), Code::Ok);
}

#[tokio::test]
async fn a_stolen_lease_id_is_worth_nothing_to_a_key_of_another_queue() {
    let Held { guarded, mut client, owner, task } = held().await;
    let thief = worker_key(&guarded, "thief", "mail").await;
    let lease_id = task.lease_id.clone();
    let report = UpdateTaskStatusRequest { lease_id: lease_id.clone(), ..done("exec-7", &task) };
    assert_eq!(
        code(client.update_task_status(with_key(&thief, report.clone())).await),
        Code::PermissionDenied
    );
    let named = LeaseHeartbeat { lease_id: lease_id.clone(), ..Default::default() };
    let named = HeartbeatRequest { leases: vec![named], ..beat("exec-7") };
    assert_eq!(code(client.report_heartbeat(with_key(&thief, named)).await), Code::PermissionDenied);
    for (call, body) in [
        ("heartbeat", json!({"workerId": "exec-7"})),
        ("complete", json!({"workerId": "exec-7", "result": 1})),
        ("fail", json!({"workerId": "exec-7", "reason": "x"})),
        ("release", json!({"workerId": "exec-7"})),
    ] {
        let told = guarded.post(&thief, &format!("/v1/leases/{lease_id}/{call}"), body).await;
        told.is_problem(403, "forbidden");
    }
    let (job, attempt) = (&task.task_id, format!("{}:1", task.task_id));
    let claim = json!({"worker_id": "exec-7", "job_id": job, "lease_token": lease_id});
    let complete = json!({
        "worker_id": "exec-7", "job_id": job, "lease_token": lease_id, "attempt_id": attempt, "result": 1,
    });
    let fail = json!({
        "worker_id": "exec-7", "job_id": job, "lease_token": lease_id, "attempt_id": attempt,
        "error": {"message": "x"},
    });
    for (call, body) in [("heartbeat", claim), ("complete", complete), ("fail", fail)] {
        let told = guarded.post(&thief, &format!("/internal/worker/{call}"), body).await;
        assert_eq!((told.status, &told.body["code"]), (403, &json!("forbidden")), "{call}: {told:?}");
    }
    let answer = client.update_task_status(with_key(&owner, report)).await.unwrap().into_inner();
    assert_eq!(answer.verdict(), Verdict::Committed);
}

#[tokio::test]
async fn the_queues_of_a_key_limit_its_calls_of_grpc() {
    let guarded = Guarded::start().await;
    let key = json!({
        "name": "mail", "tenants": ["default"], "roles": ["worker", "submitter", "builder"], "queues": ["mail"],
    });
    let (key, _) = guarded.create(key).await;
    let mut client = Client::new(channel(&guarded).await);
    client.register_worker(with_key(&key, hello("w"))).await.unwrap();
    assert_eq!(code(client.lease_task(with_key(&key, poll("w", "mail"))).await), Code::Ok);
    assert_eq!(code(client.lease_task(with_key(&key, poll("w", "other"))).await), Code::PermissionDenied);
    let both = LeaseTaskRequest { queues: vec!["mail".into(), "other".into()], ..poll("w", "mail") };
    assert_eq!(code(client.lease_task(with_key(&key, both)).await), Code::PermissionDenied);

    let task = |queue: &str| SubmitTask {
        queue: queue.to_owned(),
        payload: b"1".to_vec().into(),
        ..Default::default()
    };
    let tasks = SubmitTasksRequest { tasks: vec![task("mail"), task("other")] };
    let submitted = client.submit_tasks(with_key(&key, tasks)).await.unwrap().into_inner().tasks;
    let codes = submitted.iter().map(|task| task.problem.as_ref().map(|problem| problem.code.as_str()));
    assert_eq!(codes.collect::<Vec<_>>(), [None, Some("forbidden")]);

    for (queue, expected) in [("mail", None), ("other", Some(Code::PermissionDenied))] {
        let first = WorkHello { worker: Some(hello("streaming")), queues: vec![queue.to_owned()] };
        let first = WorkRequest { hello: Some(first), ..Default::default() };
        let opened = client.work(with_key(&key, tokio_stream::iter([first]))).await;
        let answer = match opened {
            Ok(stream) => stream.into_inner().message().await,
            Err(status) => Err(status),
        };
        assert_eq!(answer.err().map(|status| status.code()), expected, "{queue}");
    }

    let mut execution = ExecutionClient::new(channel(&guarded).await);
    let action_digest = Some(Digest { hash: "0".repeat(64), size_bytes: 1 });
    let action = ExecuteRequest { action_digest, ..Default::default() };
    let refused = execution.execute(with_key(&key, action)).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("not for the queue exec"), "{refused:?}");
}

#[tokio::test]
async fn the_prefix_of_a_key_limits_every_call_that_names_a_worker() {
    let Held { guarded, mut client, owner, task } = held().await;
    let key = json!({
        "name": "prefixed", "tenants": ["default"], "roles": ["worker"], "workerPrefix": "w-",
    });
    let (key, _) = guarded.create(key).await;
    assert_eq!(code(client.register_worker(with_key(&key, hello("w-1"))).await), Code::Ok);
    assert_eq!(code(client.report_heartbeat(with_key(&key, beat("w-1"))).await), Code::Ok);
    assert_eq!(code(client.unregister_worker(with_key(&key, leave("w-1"))).await), Code::Ok);
    let report = UpdateTaskStatusRequest { lease_id: task.lease_id.clone(), ..done("exec-7", &task) };
    let refusals = [
        code(client.register_worker(with_key(&key, hello("exec-7"))).await),
        code(client.lease_task(with_key(&key, poll("exec-7", "other"))).await),
        code(client.report_heartbeat(with_key(&key, beat("exec-7"))).await),
        code(client.update_task_status(with_key(&key, done("exec-7", &task))).await),
        code(client.update_task_status(with_key(&key, report.clone())).await),
        code(client.unregister_worker(with_key(&key, leave("exec-7"))).await),
    ];
    assert_eq!(refusals, [Code::PermissionDenied; 6]);
    let answer = client.update_task_status(with_key(&owner, report)).await.unwrap().into_inner();
    assert_eq!(answer.verdict(), Verdict::Committed);
}

/// The problems of a stream's reports and heartbeats.
async fn said_in_a_stream(
    client: &mut Client,
    key: &str,
    worker: &str,
    said: WorkRequest,
) -> Vec<Option<String>> {
    let first = WorkHello { worker: Some(hello(worker)), queues: vec!["mail".to_owned()] };
    let first = WorkRequest { hello: Some(first), ..said };
    let opened = client.work(with_key(key, tokio_stream::iter([first]))).await;
    let mut stream = opened.unwrap().into_inner();
    let mut problems = Vec::new();
    while let Some(told) = in_time(stream.message()).await.unwrap() {
        problems.extend(told.reports.into_iter().map(|answer| answer.problem.map(|problem| problem.code)));
        problems.extend(told.leases.into_iter().map(|status| status.problem.map(|problem| problem.code)));
    }
    problems
}

#[tokio::test]
async fn the_limits_of_a_key_hold_inside_a_stream() {
    let Held { guarded, mut client, owner, task } = held().await;
    let by_queue = worker_key(&guarded, "by-queue", "mail").await;
    let by_prefix = json!({
        "name": "by-prefix", "tenants": ["default"], "roles": ["worker"], "workerPrefix": "w-",
    });
    let (by_prefix, _) = guarded.create(by_prefix).await;
    let report = UpdateTaskStatusRequest { lease_id: task.lease_id.clone(), ..done("exec-7", &task) };
    for (key, worker) in [(&by_queue, "x-1"), (&by_prefix, "w-1")] {
        let said = WorkRequest { reports: vec![report.clone()], ..Default::default() };
        let problems = said_in_a_stream(&mut client, key, worker, said).await;
        assert_eq!(problems, [Some("forbidden".to_owned())], "{worker}");
    }
    // A lease of a worker without registration, whose id leaked.
    let task = json!({"queue": "other", "payload": 1});
    assert_eq!(guarded.post(&guarded.admin, "/v1/tasks", task).await.status, 201);
    let lease = json!({"workerId": "x-2", "queues": ["other"], "waitMs": 0});
    let leased = guarded.post(&owner, "/v1/leases", lease).await;
    let lease_id = leased.body["leases"][0]["leaseId"].as_str().unwrap().to_owned();
    let beats = vec![LeaseHeartbeat { lease_id, ..Default::default() }];
    let said = WorkRequest { heartbeats: beats, ..Default::default() };
    let problems = said_in_a_stream(&mut client, &by_queue, "x-2", said).await;
    assert_eq!(problems, [Some("forbidden".to_owned())]);
    let answer = client.update_task_status(with_key(&owner, report)).await.unwrap().into_inner();
    assert_eq!(answer.verdict(), Verdict::Committed);
}

#[tokio::test]
async fn a_key_of_another_queue_ends_and_redrives_no_task_and_no_operation() {
    let guarded = Guarded::start().await;
    let key = |queue: &str| {
        let roles = ["operator", "builder"];
        json!({"name": queue, "tenants": ["default"], "roles": roles, "queues": [queue]})
    };
    let (mail, _) = guarded.create(key("mail")).await;
    let (exec, _) = guarded.create(key("exec")).await;
    let task = guarded.post(&guarded.admin, "/v1/tasks", json!({"queue": "other", "payload": 1})).await;
    let path = format!("/v1/tasks/{}", task.text("taskId"));
    let cancel = format!("{path}/cancel");
    guarded.post(&mail, &cancel, json!({})).await.is_problem(403, "forbidden");
    assert_eq!(guarded.get(&guarded.admin, &path).await.body["state"], "WAITING");
    assert_eq!(guarded.post(&guarded.admin, &cancel, json!({})).await.status, 200);
    guarded.post(&mail, &format!("{path}/redrive"), json!({})).await.is_problem(403, "forbidden");
    assert_eq!(guarded.post(&guarded.admin, &format!("{path}/redrive"), json!({})).await.status, 201);
    // What never existed is not there, for any key.
    let absent = "/v1/tasks/01900000-0000-7000-8000-000000000001/cancel";
    guarded.post(&mail, absent, json!({})).await.is_problem(404, "unknown_task");

    let (name, _stream) = execute(&guarded, &exec).await;
    let mut operations = OperationsClient::new(channel(&guarded).await);
    let cancel = CancelOperationRequest { name: name.clone() };
    let delete = DeleteOperationRequest { name: name.clone() };
    assert_eq!(
        code(operations.cancel_operation(with_key(&mail, cancel.clone())).await),
        Code::PermissionDenied
    );
    assert_eq!(
        code(operations.delete_operation(with_key(&mail, delete.clone())).await),
        Code::PermissionDenied
    );
    assert_eq!(code(operations.delete_operation(with_key(&exec, delete)).await), Code::Ok);
    assert_eq!(code(operations.cancel_operation(with_key(&exec, cancel)).await), Code::NotFound);
}
