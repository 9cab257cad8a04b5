//! A worker that knows nothing but the remote execution plan: the fields up to number 15, no lease ids, and the queue
//! `exec`, here in a workspace of the check's own.

use std::collections::HashMap;
use std::time::Instant;

use bytes::Bytes;
use prost::Message;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use wire::grpc::{
    ActionResult, Backoff, HeartbeatRequest, HeartbeatResponse, LeaseTaskRequest, LeaseTaskResponse,
    LeasedTask, RegisterWorkerRequest, RegisterWorkerResponse, ResourceLimits, SERVICE_NAMES, SubmitTask,
    SubmitTasksRequest, TaskStatus, UnregisterWorkerRequest, UnregisterWorkerResponse,
    UpdateTaskStatusRequest, UpdateTaskStatusResponse, WorkerCapabilities, WorkerState, WorkerStats,
};

use super::{WAIT_S, client, done, first_id, format_status, in_scope};
use crate::answer::Answer;
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        &["S3-9", "S3-14"],
        "a worker of the plan works unchanged, under each name of the service",
        |s| Box::pin(whole_life(s)),
    ),
    Check::new(&["S3-19"], "operation_name and action_digest come with a task of the plan", |s| {
        Box::pin(operation(s))
    }),
    Check::new(
        &["S3-35"],
        "a report without a lease id is taken from the one worker that was granted the task",
        |s| Box::pin(no_lease_id(s)),
    ),
    Check::new(
        &["S3-36"],
        "a worker of the plan that is granted a task twice may fail twice in the same words",
        |s| Box::pin(failed_twice(s)),
    ),
    Check::new(
        &["S3-38"],
        "a worker of the plan that is silent for the heartbeat timeout loses its task, whatever its lease",
        |s| Box::pin(lost(s)),
    ),
    Check::new(&["S3-19"], "an execution is leased with the timeout of its action, or with a default", |s| {
        Box::pin(execution_timeout(s))
    }),
];

/// The longest silence that a check can wait for.
const MAX_SILENCE_S: i64 = 8;

const PAYLOAD: &[u8] = br#"{"operationName":"operations/1","actionDigest":"abc/3"}"#;

/// A worker of the plan, in a workspace of its own.
struct Planned<'a> {
    subject: &'a Subject,
    service: &'static str,
    workspace: String,
    id: String,
}

impl<'a> Planned<'a> {
    async fn register(subject: &'a Subject, service: &'static str) -> Result<Planned<'a>, Finding> {
        let worker = Planned { subject, service, workspace: subject.name("workspace"), id: subject.worker() };
        worker.register_again().await?;
        Ok(worker)
    }

    async fn register_again(&self) -> Result<RegisterWorkerResponse, Finding> {
        self.register_offering("OSFamily", "Linux").await
    }

    async fn register_offering(&self, name: &str, value: &str) -> Result<RegisterWorkerResponse, Finding> {
        let resources = ResourceLimits { cpu_cores: 4.0, memory_bytes: 1 << 30, disk_bytes: 1 << 40 };
        let request = RegisterWorkerRequest {
            worker_id: self.id.clone(),
            capabilities: Some(WorkerCapabilities {
                max_concurrent_executions: 4,
                resources: Some(resources),
            }),
            platform_properties: HashMap::from([(name.to_owned(), value.to_owned())]),
            ..RegisterWorkerRequest::default()
        };
        self.call("RegisterWorker", request).await
    }

    async fn submit(&self) -> Result<String, Finding> {
        self.submit_with(SubmitTask::default()).await
    }

    async fn submit_with(&self, options: SubmitTask) -> Result<String, Finding> {
        let task = SubmitTask {
            queue: "exec".to_owned(),
            payload: Bytes::from_static(PAYLOAD),
            timeout_ms: 60_000,
            properties: HashMap::from([("OSFamily".to_owned(), "Linux".to_owned())]),
            ..options
        };
        let request = self.scoped(SubmitTasksRequest { tasks: vec![task] });
        first_id(done("SubmitTasks", client(self.subject).submit_tasks(request).await)?.tasks)
    }

    fn scoped<T>(&self, message: T) -> Request<T> {
        in_scope(message, &self.subject.options.tenant, &self.workspace)
    }

    async fn call<Q, A>(&self, call: &str, request: Q) -> Result<A, Finding>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let answer = self.try_call(call, request).await;
        answer.map_err(|status| {
            Finding::broken(format!("{}/{call} was refused: {}", self.service, format_status(&status)))
        })
    }

    async fn try_call<Q, A>(&self, call: &str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = tonic::client::Grpc::new(self.subject.channel());
        grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = format!("/{}/{call}", self.service);
        let path = path.parse().map_err(|_| Status::internal("the path is none"))?;
        Ok(grpc.unary(self.scoped(request), path, ProstCodec::default()).await?.into_inner())
    }

    /// Leases a task of the queue `exec`, also from a server whose own limit for a poll is shorter than the wait.
    async fn lease(&self) -> Result<LeasedTask, Finding> {
        let ask = LeaseTaskRequest {
            worker_id: self.id.clone(),
            max_tasks: 1,
            timeout_seconds: WAIT_S,
            ..LeaseTaskRequest::default()
        };
        let begun = Instant::now();
        // A server that does not wait at all is not asked forever.
        for _ in 0..WAIT_S {
            let answer: LeaseTaskResponse = self.call("LeaseTask", ask.clone()).await?;
            if let Some(task) = answer.tasks.into_iter().next() {
                return Ok(task);
            }
            if begun.elapsed().as_secs() >= WAIT_S as u64 {
                break;
            }
        }
        Err(Finding::broken("LeaseTask gave no task of the queue `exec`"))
    }

    fn update(&self, task: &LeasedTask, status: TaskStatus) -> UpdateTaskStatusRequest {
        UpdateTaskStatusRequest {
            task_id: task.task_id.clone(),
            worker_id: self.id.clone(),
            status: status.into(),
            ..UpdateTaskStatusRequest::default()
        }
    }

    async fn send(&self, update: UpdateTaskStatusRequest) -> Result<(), Finding> {
        self.call::<_, UpdateTaskStatusResponse>("UpdateTaskStatus", update).await.map(|_| ())
    }

    async fn task(&self, task: &str) -> Result<Answer, Finding> {
        let url = format!("{}/v1/tasks/{task}", self.subject.url());
        let request = self.subject.unscoped(reqwest::Method::GET, &url);
        let request = request.header(wire::TENANT_HEADER, &self.subject.options.tenant);
        let answer = self.subject.send(request.header(wire::WORKSPACE_HEADER, &self.workspace)).await?;
        answer.is(200)?;
        Ok(answer)
    }
}

async fn whole_life(subject: &Subject) -> Result<(), Finding> {
    for service in SERVICE_NAMES {
        let worker = Planned::register(subject, service).await?;
        let (done, broken) = (worker.submit().await?, worker.submit().await?);
        let first = worker.lease().await?;
        must(first.task_id == done, || format!("LeaseTask gave {first:?}"))?;
        worker.send(worker.update(&first, TaskStatus::Executing)).await?;
        let beat = HeartbeatRequest {
            worker_id: worker.id.clone(),
            state: WorkerState::Busy.into(),
            stats: Some(WorkerStats { active_tasks: 1, total_completed: 0, total_failed: 0 }),
            ..HeartbeatRequest::default()
        };
        let answer: HeartbeatResponse = worker.call("ReportHeartbeat", beat).await?;
        must(!answer.should_shutdown, || "the worker was told to shut down".into())?;
        let result = Some(ActionResult { exit_code: 0, ..ActionResult::default() });
        worker
            .send(UpdateTaskStatusRequest { result, ..worker.update(&first, TaskStatus::Completed) })
            .await?;
        worker.task(&done).await?.has("state", "COMPLETED")?;
        let second = worker.lease().await?;
        must(second.task_id == broken, || format!("LeaseTask gave {second:?}"))?;
        let error_message = "no such command".to_owned();
        worker
            .send(UpdateTaskStatusRequest { error_message, ..worker.update(&second, TaskStatus::Failed) })
            .await?;
        worker.task(&broken).await?.has("/error/message", "no such command")?;
        let leave =
            UnregisterWorkerRequest { worker_id: worker.id.clone(), ..UnregisterWorkerRequest::default() };
        worker.call::<_, UnregisterWorkerResponse>("UnregisterWorker", leave).await?;
    }
    Ok(())
}

async fn operation(subject: &Subject) -> Result<(), Finding> {
    let worker = Planned::register(subject, SERVICE_NAMES[0]).await?;
    worker.submit().await?;
    let leased = worker.lease().await?;
    let answer = (leased.operation_name.as_str(), leased.action_digest.as_str());
    must(answer == ("operations/1", "abc/3"), || format!("they came as {answer:?}"))?;
    let timeout = leased.timeout.unwrap_or_default();
    must(timeout.seconds == 60 && leased.lease_expires_at.is_some(), || {
        format!("`timeout` or `lease_expires_at` is wrong: {leased:?}")
    })
}

async fn no_lease_id(subject: &Subject) -> Result<(), Finding> {
    let worker = Planned::register(subject, SERVICE_NAMES[0]).await?;
    worker.submit().await?;
    let held = worker.lease().await?;
    let other = Planned { id: subject.worker(), workspace: worker.workspace.clone(), ..worker };
    other.register_again().await?;
    let stolen = other.try_call::<_, UpdateTaskStatusResponse>(
        "UpdateTaskStatus",
        other.update(&held, TaskStatus::Completed),
    );
    super::refused(
        "a report of a worker that never had the task",
        stolen.await,
        &[tonic::Code::PermissionDenied],
    )?;
    let worker =
        Planned { id: worker.id, subject, service: other.service, workspace: other.workspace.clone() };
    worker.send(worker.update(&held, TaskStatus::Completed)).await?;
    worker.send(worker.update(&held, TaskStatus::Completed)).await?;
    worker.task(&held.task_id).await?.has("state", "COMPLETED")?;
    Ok(())
}

/// The worker knows neither attempts nor lease ids, so that both reports are the same bytes.
async fn failed_twice(subject: &Subject) -> Result<(), Finding> {
    let worker = Planned::register(subject, SERVICE_NAMES[0]).await?;
    let id = worker.submit_with(SubmitTask { max_attempts: 2, ..retried_at_once() }).await?;
    for attempt in [1, 2] {
        let held = worker.lease().await?;
        must(held.task_id == id, || format!("attempt {attempt}: LeaseTask gave {held:?}"))?;
        let error_message = "no such command".to_owned();
        let report = UpdateTaskStatusRequest { error_message, ..worker.update(&held, TaskStatus::Failed) };
        worker.send(report).await?;
        worker.task(&id).await?.has("state", if attempt == 1 { "WAITING" } else { "FAILED" })?;
    }
    Ok(())
}

async fn lost(subject: &Subject) -> Result<(), Finding> {
    let silent = Planned::register(subject, SERVICE_NAMES[0]).await?;
    let silence_s = silent.register_again().await?.heartbeat_timeout.map_or(i64::MAX, |span| span.seconds);
    if silence_s > MAX_SILENCE_S {
        let how =
            format!("the heartbeat timeout must be known, and at most {MAX_SILENCE_S} s, to be waited for");
        return Err(Finding::Skipped(how));
    }
    silent.submit_with(retried_at_once()).await?;
    let held = silent.lease().await?;
    let other = Planned { id: subject.worker(), workspace: silent.workspace.clone(), ..silent };
    other.register_again().await?;
    let again = other.lease().await?;
    must(again.task_id == held.task_id, || format!("LeaseTask gave {again:?}"))?;
    // Both times are the server's, so its clock need not agree with the one here.
    let seconds = |time: Option<prost_types::Timestamp>| time.map(|time| time.seconds);
    let (granted, expired) = (seconds(again.granted_at), seconds(held.lease_expires_at));
    must(granted.is_some() && granted < expired, || {
        format!(
            "the lease had run out by itself, or a time is missing: it was to end at {expired:?}, and the task was granted \
             again at {granted:?}; a lease should be longer than the heartbeat timeout"
        )
    })
}

/// A task whose next attempt may begin at once, whatever the server's own backoff.
fn retried_at_once() -> SubmitTask {
    let backoff = Backoff { initial_ms: Some(0), jitter: Some(0.0), ..Backoff::default() };
    SubmitTask { backoff: Some(backoff), ..SubmitTask::default() }
}

async fn execution_timeout(subject: &Subject) -> Result<(), Finding> {
    let workspace = match subject.options.instance.as_str() {
        "" => subject.options.workspace.clone(),
        instance => instance.to_owned(),
    };
    let worker = Planned { subject, service: SERVICE_NAMES[0], workspace, id: subject.worker() };
    let value = subject.name("platform");
    let property = ("conformance", value.as_str());
    worker.register_offering(property.0, property.1).await?;
    for timeout_s in [Some(90), None] {
        let _waiting = crate::reapi::begin_for(subject, property, timeout_s).await?;
        let task = worker.lease().await?;
        let told = task.timeout.as_ref().map_or(0, |timeout| timeout.seconds);
        let is_right = timeout_s.map_or(told > 0, |seconds| told == seconds);
        must(is_right, || format!("an action with the timeout {timeout_s:?} was leased with {told} s"))?;
        must(!task.operation_name.is_empty() && !task.action_digest.is_empty(), || {
            format!("it came as {task:?}")
        })?;
        let result = Some(ActionResult::default());
        let report = UpdateTaskStatusRequest { result, ..worker.update(&task, TaskStatus::Completed) };
        worker.send(report).await?;
    }
    Ok(())
}
