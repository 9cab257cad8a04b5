//! The limits of a key hold on every call of gRPC: its queues, also for leases that are held already, and the names of its
//! workers. A worker's name alone opens nothing.

use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{Digest, ExecuteRequest};
use serde_json::json;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    HeartbeatRequest, LeaseHeartbeat, LeaseTaskRequest, LeasedTask, RegisterWorkerRequest, SubmitTask,
    SubmitTasksRequest, TaskStatus, UnregisterWorkerRequest, UpdateTaskStatusRequest, Verdict, WorkHello,
    WorkRequest,
};

use crate::guarded::Guarded;

type Client = WorkerSchedulerClient<Channel>;

async fn channel(guarded: &Guarded) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", guarded.served.address)).unwrap();
    endpoint.connect().await.unwrap()
}

/// A request with a key.
fn with<T>(key: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    request
}

fn code<T>(answer: Result<Response<T>, Status>) -> Code {
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

fn hello(worker: &str) -> RegisterWorkerRequest {
    RegisterWorkerRequest { worker_id: worker.to_owned(), ..Default::default() }
}

fn leave(worker: &str) -> UnregisterWorkerRequest {
    UnregisterWorkerRequest { worker_id: worker.to_owned(), ..Default::default() }
}

fn beat(worker: &str) -> HeartbeatRequest {
    HeartbeatRequest { worker_id: worker.to_owned(), ..Default::default() }
}

fn poll(worker: &str, queue: &str) -> LeaseTaskRequest {
    LeaseTaskRequest {
        worker_id: worker.to_owned(),
        queues: vec![queue.to_owned()],
        max_tasks: 1,
        ..Default::default()
    }
}

/// A report that a task is done, by the name of its worker only.
fn done(worker: &str, task: &LeasedTask) -> UpdateTaskStatusRequest {
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
    client.register_worker(with(&owner, hello("exec-7"))).await.unwrap();
    let leased = client.lease_task(with(&owner, poll("exec-7", "other"))).await.unwrap().into_inner();
    let task = leased.tasks.into_iter().next().unwrap();
    Held { guarded, client, owner, task }
}

/// Its heartbeat by the worker's name named all leases of the worker, with which it could report as the worker.
#[tokio::test]
async fn a_key_of_another_queue_learns_and_ends_no_lease_of_a_worker_whose_name_it_knows() {
    let Held { guarded, mut client, owner, task } = held().await;
    let thief = worker_key(&guarded, "thief", "mail").await;
    let told = client.report_heartbeat(with(&thief, beat("exec-7"))).await.unwrap().into_inner();
    assert_eq!(told.leases, [], "no lease id is handed out");
    assert_eq!(code(client.register_worker(with(&thief, hello("exec-7"))).await), Code::PermissionDenied);
    let again = RegisterWorkerRequest { session_id: "mine".to_owned(), ..hello("exec-7") };
    let refused = client.register_worker(with(&thief, again)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("holds leases of queues that the key is not for"), "{refused:?}");
    assert_eq!(code(client.unregister_worker(with(&thief, leave("exec-7"))).await), Code::PermissionDenied);
    let forged = client.update_task_status(with(&thief, done("exec-7", &task))).await.unwrap_err();
    assert_eq!(forged.code(), Code::PermissionDenied);
    assert!(forged.message().contains("not for the queue other"), "{forged:?}");
    // The lease is still its owner's.
    let told = client.report_heartbeat(with(&owner, beat("exec-7"))).await.unwrap().into_inner();
    let ids: Vec<_> = told.leases.iter().map(|status| (&status.lease_id, status.lost)).collect();
    assert_eq!(ids, [(&task.lease_id, false)]);
    let answer = client.update_task_status(with(&owner, done("exec-7", &task))).await.unwrap().into_inner();
    assert_eq!(answer.verdict(), Verdict::Committed);
    // Nothing of another queue is held any more, so that the name is free for the key.
    assert_eq!(code(client.register_worker(with(&thief, hello("exec-7"))).await), Code::Ok);
}

#[tokio::test]
async fn a_stolen_lease_id_is_worth_nothing_to_a_key_of_another_queue() {
    let Held { guarded, mut client, owner, task } = held().await;
    let thief = worker_key(&guarded, "thief", "mail").await;
    let lease_id = task.lease_id.clone();
    let report = UpdateTaskStatusRequest { lease_id: lease_id.clone(), ..done("exec-7", &task) };
    assert_eq!(code(client.update_task_status(with(&thief, report.clone())).await), Code::PermissionDenied);
    let named = LeaseHeartbeat { lease_id: lease_id.clone(), ..Default::default() };
    let named = HeartbeatRequest { leases: vec![named], ..beat("exec-7") };
    let told = client.report_heartbeat(with(&thief, named)).await.unwrap().into_inner();
    let status = &told.leases[0];
    assert_eq!(status.problem.as_ref().map(|problem| problem.code.as_str()), Some("forbidden"));
    assert!(status.lost && status.task_id.is_empty() && status.expires_at.is_none(), "{status:?}");
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
    let answer = client.update_task_status(with(&owner, report)).await.unwrap().into_inner();
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
    client.register_worker(with(&key, hello("w"))).await.unwrap();
    assert_eq!(code(client.lease_task(with(&key, poll("w", "mail"))).await), Code::Ok);
    assert_eq!(code(client.lease_task(with(&key, poll("w", "other"))).await), Code::PermissionDenied);
    let both = LeaseTaskRequest { queues: vec!["mail".into(), "other".into()], ..poll("w", "mail") };
    assert_eq!(code(client.lease_task(with(&key, both)).await), Code::PermissionDenied);

    let task = |queue: &str| SubmitTask {
        queue: queue.to_owned(),
        payload: b"1".to_vec().into(),
        ..Default::default()
    };
    let tasks = SubmitTasksRequest { tasks: vec![task("mail"), task("other")] };
    let submitted = client.submit_tasks(with(&key, tasks)).await.unwrap().into_inner().tasks;
    let codes = submitted.iter().map(|task| task.problem.as_ref().map(|problem| problem.code.as_str()));
    assert_eq!(codes.collect::<Vec<_>>(), [None, Some("forbidden")]);

    for (queue, expected) in [("mail", None), ("other", Some(Code::PermissionDenied))] {
        let first = WorkHello { worker: Some(hello("streaming")), queues: vec![queue.to_owned()] };
        let first = WorkRequest { hello: Some(first), ..Default::default() };
        let opened = client.work(with(&key, tokio_stream::iter([first]))).await;
        let answer = match opened {
            Ok(stream) => stream.into_inner().message().await,
            Err(status) => Err(status),
        };
        assert_eq!(answer.err().map(|status| status.code()), expected, "{queue}");
    }

    let mut execution = ExecutionClient::new(channel(&guarded).await);
    let action_digest = Some(Digest { hash: "0".repeat(64), size_bytes: 1 });
    let action = ExecuteRequest { action_digest, ..Default::default() };
    let refused = execution.execute(with(&key, action)).await.map(|_| ()).unwrap_err();
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
    assert_eq!(code(client.register_worker(with(&key, hello("w-1"))).await), Code::Ok);
    assert_eq!(code(client.report_heartbeat(with(&key, beat("w-1"))).await), Code::Ok);
    assert_eq!(code(client.unregister_worker(with(&key, leave("w-1"))).await), Code::Ok);
    let report = UpdateTaskStatusRequest { lease_id: task.lease_id.clone(), ..done("exec-7", &task) };
    let refusals = [
        code(client.register_worker(with(&key, hello("exec-7"))).await),
        code(client.lease_task(with(&key, poll("exec-7", "other"))).await),
        code(client.report_heartbeat(with(&key, beat("exec-7"))).await),
        code(client.update_task_status(with(&key, done("exec-7", &task))).await),
        code(client.update_task_status(with(&key, report.clone())).await),
        code(client.unregister_worker(with(&key, leave("exec-7"))).await),
    ];
    assert_eq!(refusals, [Code::PermissionDenied; 6]);
    let answer = client.update_task_status(with(&owner, report)).await.unwrap().into_inner();
    assert_eq!(answer.verdict(), Verdict::Committed);
}
