//! A worker that knows nothing but the remote execution plan: its messages with its numbers, its service name without a
//! package, no lease ids. The messages are written down here again, so that no mistake in ours can hide.

use std::collections::HashMap;

use prost::Message;
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;
use wire::grpc::ActionResult;

use crate::support::{Served, in_time, is_rejected};

#[derive(Clone, PartialEq, Message)]
struct RegisterWorkerRequest {
    #[prost(string, tag = "1")]
    worker_id: String,
    #[prost(message, optional, tag = "2")]
    capabilities: Option<WorkerCapabilities>,
    #[prost(map = "string, string", tag = "3")]
    platform_properties: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct WorkerCapabilities {
    #[prost(int32, tag = "1")]
    max_concurrent_executions: i32,
    #[prost(message, optional, tag = "2")]
    resources: Option<ResourceLimits>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceLimits {
    #[prost(double, tag = "1")]
    cpu_cores: f64,
    #[prost(int64, tag = "2")]
    memory_bytes: i64,
    #[prost(int64, tag = "3")]
    disk_bytes: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
struct LeaseTaskRequest {
    #[prost(string, tag = "1")]
    worker_id: String,
    #[prost(int32, tag = "2")]
    max_tasks: i32,
    #[prost(int64, tag = "3")]
    timeout_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseTaskResponse {
    #[prost(message, repeated, tag = "1")]
    tasks: Vec<LeasedTask>,
}

#[derive(Clone, PartialEq, Message)]
struct LeasedTask {
    #[prost(string, tag = "1")]
    task_id: String,
    #[prost(string, tag = "2")]
    operation_name: String,
    #[prost(string, tag = "3")]
    action_digest: String,
    #[prost(message, optional, tag = "4")]
    timeout: Option<prost_types::Duration>,
    #[prost(message, optional, tag = "5")]
    lease_expires_at: Option<prost_types::Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct UpdateTaskStatusRequest {
    #[prost(string, tag = "1")]
    task_id: String,
    #[prost(string, tag = "2")]
    worker_id: String,
    #[prost(int32, tag = "3")]
    status: i32,
    #[prost(message, optional, tag = "4")]
    result: Option<ActionResult>,
    #[prost(string, tag = "5")]
    error_message: String,
}

#[derive(Clone, PartialEq, Message)]
struct HeartbeatRequest {
    #[prost(string, tag = "1")]
    worker_id: String,
    #[prost(int32, tag = "2")]
    state: i32,
    #[prost(message, optional, tag = "3")]
    stats: Option<WorkerStats>,
}

#[derive(Clone, PartialEq, Message)]
struct WorkerStats {
    #[prost(int32, tag = "1")]
    active_tasks: i32,
    #[prost(int64, tag = "2")]
    total_completed: i64,
    #[prost(int64, tag = "3")]
    total_failed: i64,
}

#[derive(Clone, PartialEq, Message)]
struct HeartbeatResponse {
    #[prost(bool, tag = "1")]
    should_shutdown: bool,
}

#[derive(Clone, PartialEq, Message)]
struct UnregisterWorkerRequest {
    #[prost(string, tag = "1")]
    worker_id: String,
}

const EXECUTING: i32 = 1;
const COMPLETED: i32 = 2;
const FAILED: i32 = 3;

struct Worker {
    channel: Channel,
    service: &'static str,
    name: &'static str,
}

impl Worker {
    async fn registered(served: &Served, service: &'static str, name: &'static str) -> Worker {
        let worker = Worker { channel: served.channel().await, service, name };
        let resources = ResourceLimits { cpu_cores: 4.0, memory_bytes: 1 << 30, disk_bytes: 1 << 40 };
        let capabilities = WorkerCapabilities { max_concurrent_executions: 4, resources: Some(resources) };
        let request = RegisterWorkerRequest {
            worker_id: name.to_owned(),
            capabilities: Some(capabilities),
            platform_properties: HashMap::from([("OSFamily".to_owned(), "Linux".to_owned())]),
        };
        worker.call::<_, Empty>("RegisterWorker", request).await.unwrap();
        worker
    }

    async fn call<Q, A>(&self, call: &str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = format!("/{}/{call}", self.service).parse().unwrap();
        let answer = grpc.unary(Request::new(request), path, ProstCodec::default()).await?;
        Ok(answer.into_inner())
    }

    async fn lease(&self) -> LeasedTask {
        let ask = LeaseTaskRequest { worker_id: self.name.to_owned(), max_tasks: 1, timeout_seconds: 30 };
        let answer: LeaseTaskResponse = in_time(self.call("LeaseTask", ask)).await.unwrap();
        answer.tasks.into_iter().next().expect("a task")
    }

    async fn update(
        &self,
        task: &LeasedTask,
        status: i32,
        result: Option<ActionResult>,
        error: &str,
    ) -> Result<(), Status> {
        let request = UpdateTaskStatusRequest {
            task_id: task.task_id.clone(),
            worker_id: self.name.to_owned(),
            status,
            result,
            error_message: error.to_owned(),
        };
        self.call::<_, Empty>("UpdateTaskStatus", request).await.map(|_| ())
    }
}

async fn submit(served: &Served) -> String {
    let payload = json!({"operationName": "operations/1", "actionDigest": "abc/3"});
    let body = json!({"queue": "exec", "payload": payload, "timeoutMs": 60_000, "properties": {"OSFamily": "Linux"}});
    served.send("POST", "/v1/tasks", body).await["taskId"].as_str().unwrap().to_owned()
}

/// S3-9…S3-26 with the plan's own messages, under every name that its package may have.
#[tokio::test]
async fn s3_9_to_26_a_worker_of_the_plan_works_unchanged() {
    for service in [
        "WorkerScheduler",
        "build.bazel.remote.execution.v2.WorkerScheduler",
        "lessor.worker.v1.WorkerScheduler",
    ] {
        let served = Served::start().await;
        let worker = Worker::registered(&served, service, "worker-host-01").await;
        let (done, broken) = (submit(&served).await, submit(&served).await);

        let task = worker.lease().await;
        assert_eq!((&task.task_id, task.operation_name.as_str()), (&done, "operations/1"));
        assert_eq!(task.action_digest, "abc/3");
        assert_eq!(task.timeout, Some(prost_types::Duration { seconds: 60, nanos: 0 }));
        assert!(task.lease_expires_at.is_some());
        worker.update(&task, EXECUTING, None, "").await.unwrap();
        let stats = WorkerStats { active_tasks: 1, total_completed: 0, total_failed: 0 };
        let beat = HeartbeatRequest { worker_id: worker.name.to_owned(), state: 1, stats: Some(stats) };
        let told: HeartbeatResponse = worker.call("ReportHeartbeat", beat).await.unwrap();
        assert!(!told.should_shutdown);
        let result = ActionResult { exit_code: 0, stdout_raw: b"ok".to_vec(), ..ActionResult::default() };
        worker.update(&task, COMPLETED, Some(result), "").await.unwrap();
        let shown = served.task(&done).await;
        assert_eq!((&shown["state"], &shown["result"]["exitCode"]), (&json!("COMPLETED"), &json!(0)));

        let task = worker.lease().await;
        assert_eq!(task.task_id, broken);
        worker.update(&task, FAILED, None, "no such command").await.unwrap();
        let shown = served.task(&broken).await;
        assert_eq!(
            (&shown["state"], &shown["error"]["message"]),
            (&json!("WAITING"), &json!("no such command"))
        );
        let leave = UnregisterWorkerRequest { worker_id: worker.name.to_owned() };
        worker.call::<_, Empty>("UnregisterWorker", leave).await.unwrap();
        assert!(served.known(worker.name).await.is_null());
    }
}

/// Messages of a version that nobody has written yet: all that the plan has, and a field that we do not know.
#[derive(Clone, PartialEq, Message)]
struct NewerHeartbeatRequest {
    #[prost(string, tag = "1")]
    worker_id: String,
    #[prost(int32, tag = "2")]
    state: i32,
    #[prost(string, tag = "1999")]
    mood: String,
}

/// A version is part of a service's name. One that is not served is refused as such, and nothing is guessed; within a
/// version, what one side does not know is left out or ignored.
#[tokio::test]
async fn w17_a_worker_of_another_version_is_refused_by_name_or_understood() {
    let served = Served::start().await;
    let position = served.position().await;
    for service in ["lessor.worker.v2.WorkerScheduler", "lessor.worker.v1.WorkerSchedulerV2"] {
        let worker = Worker { channel: served.channel().await, service, name: "newer" };
        let request = RegisterWorkerRequest { worker_id: "newer".to_owned(), ..Default::default() };
        let refused = worker.call::<_, Empty>("RegisterWorker", request).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{service}: {refused:?}");
    }
    let later = served.send("POST", "/v2/leases", json!({"workerId": "newer", "queues": ["q"]})).await;
    assert_eq!((&later["status"], &later["code"]), (&json!(404), &json!("not_found")), "{later}");
    assert!(served.known("newer").await.is_null());
    assert_eq!(served.position().await, position, "nothing was recorded");

    let newer = Worker::registered(&served, "lessor.worker.v1.WorkerScheduler", "newer").await;
    let beat = NewerHeartbeatRequest { worker_id: "newer".to_owned(), state: 1, mood: "fine".to_owned() };
    let told: HeartbeatResponse = newer.call("ReportHeartbeat", beat).await.unwrap();
    assert!(!told.should_shutdown);
    let older = Worker::registered(&served, "WorkerScheduler", "older").await;
    let id = submit(&served).await;
    let task = older.lease().await;
    older.update(&task, COMPLETED, Some(ActionResult::default()), "").await.unwrap();
    assert_eq!(served.task(&id).await["state"], "COMPLETED");
}

/// C17: without a lease id a report is taken only when it can mean but one attempt; then it is judged like any other.
#[tokio::test]
async fn c17_a_repeat_without_a_lease_id_is_a_repeat_and_another_story_is_rejected() {
    let served = Served::start().await;
    let worker = Worker::registered(&served, "WorkerScheduler", "w").await;
    submit(&served).await;
    let task = worker.lease().await;
    worker.update(&task, COMPLETED, None, "").await.unwrap();
    let position = served.position().await;
    worker.update(&task, COMPLETED, None, "").await.unwrap();
    is_rejected(
        worker.update(&task, FAILED, None, "no").await,
        Code::FailedPrecondition,
        "conflicting_report",
    );
    assert_eq!(served.position().await, position);
}

#[tokio::test]
async fn s3_35_c17_a_worker_that_was_never_granted_the_task_is_refused() {
    let served = Served::start().await;
    let worker = Worker::registered(&served, "WorkerScheduler", "w").await;
    let other = Worker::registered(&served, "WorkerScheduler", "v").await;
    let task_id = submit(&served).await;
    let waiting = LeasedTask { task_id, ..LeasedTask::default() };
    is_rejected(worker.update(&waiting, COMPLETED, None, "").await, Code::PermissionDenied, "wrong_worker");
    let task = worker.lease().await;
    for status in [EXECUTING, COMPLETED, FAILED] {
        is_rejected(other.update(&task, status, None, "").await, Code::PermissionDenied, "wrong_worker");
    }
    for task_id in ["", "nope", "01901234-5678-7000-bfff-ffffffffffff"] {
        let unknown = LeasedTask { task_id: task_id.to_owned(), ..LeasedTask::default() };
        is_rejected(worker.update(&unknown, COMPLETED, None, "").await, Code::NotFound, "unknown_task");
    }
    worker.update(&task, COMPLETED, None, "").await.unwrap();
}

/// S3-36: the same task is granted to the worker twice, and it fails twice with the same words.
#[tokio::test]
async fn c17_a_report_applies_to_the_live_lease_whatever_earlier_attempts_reported() {
    let served = Served::start().await;
    served.send("PUT", "/v1/queues/exec", json!({"backoff": {"initialMs": 0, "jitter": 0}})).await;
    let worker = Worker::registered(&served, "WorkerScheduler", "w").await;
    submit(&served).await;
    for attempt in [1, 2] {
        let task = worker.lease().await;
        worker.update(&task, EXECUTING, None, "").await.unwrap();
        worker.update(&task, FAILED, None, "no such file").await.unwrap();
        let shown = served.task(&task.task_id).await;
        assert_eq!((&shown["state"], &shown["attempt"]), (&json!("WAITING"), &json!(attempt)));
    }
    let task = worker.lease().await;
    worker.update(&task, COMPLETED, None, "").await.unwrap();
    assert_eq!(served.task(&task.task_id).await["state"], "COMPLETED");
    // It holds nothing any more, so each report is compared with its attempts.
    let position = served.position().await;
    worker.update(&task, COMPLETED, None, "").await.unwrap();
    worker.update(&task, FAILED, None, "no such file").await.unwrap();
    is_rejected(
        worker.update(&task, FAILED, None, "another").await,
        Code::FailedPrecondition,
        "conflicting_report",
    );
    assert_eq!(served.position().await, position, "repeats change nothing");
}

#[tokio::test]
async fn c17_a_lease_of_another_contract_needs_its_proof() {
    let served = Served::start().await;
    let worker = Worker::registered(&served, "WorkerScheduler", "w").await;
    let body = json!({"workerId": "w", "queues": ["exec"], "properties": {"OSFamily": "Linux"}});
    let claim = json!({"worker_id": "w", "streams": ["exec"], "properties": {"OSFamily": "Linux"}});
    for (path, ask) in [("/v1/leases", body), ("/internal/worker/claim", claim)] {
        let task_id = submit(&served).await;
        served.send("POST", path, ask).await;
        let before = served.task(&task_id).await;
        assert_eq!(
            (&before["state"], &before["lease"]["workerId"]),
            (&json!("LEASED"), &json!("w")),
            "{path}"
        );
        let position = served.position().await;
        let task = LeasedTask { task_id: task_id.clone(), ..LeasedTask::default() };
        for status in [EXECUTING, COMPLETED, FAILED] {
            let refused = worker.update(&task, status, None, "").await;
            is_rejected(refused, Code::PermissionDenied, "wrong_worker");
        }
        let beat = HeartbeatRequest { worker_id: "w".to_owned(), ..HeartbeatRequest::default() };
        let answer: wire::grpc::HeartbeatResponse = worker.call("ReportHeartbeat", beat).await.unwrap();
        assert_eq!(answer.leases, [], "a lease that cannot be reported on is not extended");
        let leave = UnregisterWorkerRequest { worker_id: "w".to_owned() };
        let left: wire::grpc::UnregisterWorkerResponse =
            worker.call("UnregisterWorker", leave).await.unwrap();
        assert_eq!(left.released_leases, 0);
        assert_eq!(served.position().await, position);
    }
}

#[tokio::test]
async fn c17_a_task_that_another_worker_had_before_is_reported_without_a_lease_id() {
    let served = Served::start().await;
    served.send("PUT", "/v1/queues/exec", json!({"backoff": {"initialMs": 0, "jitter": 0}})).await;
    let first = Worker::registered(&served, "WorkerScheduler", "v").await;
    let second = Worker::registered(&served, "WorkerScheduler", "w").await;
    submit(&served).await;
    let task = first.lease().await;
    first.update(&task, FAILED, None, "no").await.unwrap();
    let again = second.lease().await;
    second.update(&again, COMPLETED, None, "").await.unwrap();
    assert_eq!(served.task(&task.task_id).await["state"], "COMPLETED");
    first.update(&task, FAILED, None, "no").await.unwrap();
}
