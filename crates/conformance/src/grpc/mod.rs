//! The worker service over gRPC: the remote execution plan's messages, and the fields that were added to them. Tasks are
//! submitted with SubmitTasks; queues are configured, and tasks and workers looked at, by the native contract.

mod guard;
mod heartbeats;
mod leasing;
mod plan;
mod registration;
mod reports;
mod requeue;

use bytes::Bytes;
use contract_clients::LeaseRef;
use contract_clients::grpc::{self, Client};
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Response, Status};
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    HeartbeatRequest, HeartbeatResponse, LeaseTaskRequest, LeasedTask, RegisterWorkerRequest, SubmitTask,
    SubmitTasksRequest, TaskState, TaskStatus, UpdateTaskStatusRequest, UpdateTaskStatusResponse, Verdict,
};

use crate::finding::{must, short};
use crate::{Check, Finding, Subject};

pub(crate) const THEMES: &[&[Check]] = &[
    registration::CHECKS,
    leasing::CHECKS,
    reports::CHECKS,
    heartbeats::CHECKS,
    requeue::CHECKS,
    guard::CHECKS,
    plan::CHECKS,
];

pub(crate) const UNOBSERVABLE: &[(&str, &str)] =
    &[("S3-39", "what becomes of an Operation shows in the Execution service, which is another contract")];

/// How long a poll waits for an expected task.
const WAIT_S: i64 = 10;

/// A worker that is registered.
struct Worker<'a> {
    subject: &'a Subject,
    id: String,
}

impl<'a> Worker<'a> {
    async fn register(subject: &'a Subject) -> Result<Worker<'a>, Finding> {
        let worker = Worker { subject, id: subject.worker() };
        worker.register_as(worker.registration()).await?;
        Ok(worker)
    }

    fn registration(&self) -> RegisterWorkerRequest {
        grpc::registration(&self.id)
    }

    async fn register_as(&self, registration: RegisterWorkerRequest) -> Result<(), Finding> {
        let answer = client(self.subject).register_worker(scoped(self.subject, registration)).await;
        done("RegisterWorker", answer).map(|_| ())
    }

    /// Asks for one task of a queue, without waiting.
    fn ask(&self, queue: &str) -> LeaseTaskRequest {
        grpc::lease(&self.id, queue, 1)
    }

    async fn poll(&self, poll: LeaseTaskRequest) -> Result<Vec<LeasedTask>, Finding> {
        let answer = client(self.subject).lease_task(scoped(self.subject, poll)).await;
        done("LeaseTask", answer).map(|answer| answer.tasks)
    }

    /// Leases the next task of a queue; fails if there is none.
    async fn lease(&self, queue: &str) -> Result<LeasedTask, Finding> {
        let tasks = self.poll(LeaseTaskRequest { timeout_seconds: WAIT_S, ..self.ask(queue) }).await?;
        let count = tasks.len();
        let only = tasks.into_iter().next().filter(|_| count == 1);
        only.ok_or_else(|| Finding::broken(format!("LeaseTask gave {count} tasks, and one was expected")))
    }

    /// Submits a task and leases it.
    async fn leased(&self, queue: &str) -> Result<LeasedTask, Finding> {
        let id = submit(self.subject, task(queue)).await?;
        let leased = self.lease(queue).await?;
        must(leased.task_id == id, || format!("LeaseTask gave {}, and {id} was expected", leased.task_id))?;
        Ok(leased)
    }

    fn update(&self, task: &LeasedTask, status: TaskStatus) -> UpdateTaskStatusRequest {
        let (lease_id, task_id) = (task.lease_id.clone(), task.task_id.clone());
        let lease = LeaseRef { lease_id, task_id, worker_id: self.id.clone(), attempt: task.attempt };
        grpc::update(&lease, status)
    }

    fn completed(&self, task: &LeasedTask, result: &'static str) -> UpdateTaskStatusRequest {
        UpdateTaskStatusRequest {
            result_json: Bytes::from_static(result.as_bytes()),
            ..self.update(task, TaskStatus::Completed)
        }
    }

    fn failed(&self, task: &LeasedTask, message: &str, retryable: Option<bool>) -> UpdateTaskStatusRequest {
        let update = self.update(task, TaskStatus::Failed);
        UpdateTaskStatusRequest { error_message: message.to_owned(), retryable, ..update }
    }

    fn released(&self, task: &LeasedTask) -> UpdateTaskStatusRequest {
        UpdateTaskStatusRequest { release: true, ..self.update(task, TaskStatus::Unknown) }
    }

    async fn send(&self, update: UpdateTaskStatusRequest) -> Result<UpdateTaskStatusResponse, Finding> {
        done("UpdateTaskStatus", self.try_send(update).await)
    }

    async fn try_send(
        &self,
        update: UpdateTaskStatusRequest,
    ) -> Result<Response<UpdateTaskStatusResponse>, Status> {
        client(self.subject).update_task_status(scoped(self.subject, update)).await
    }

    fn beat(&self) -> HeartbeatRequest {
        HeartbeatRequest { worker_id: self.id.clone(), ..HeartbeatRequest::default() }
    }

    async fn heartbeat(&self, beat: HeartbeatRequest) -> Result<HeartbeatResponse, Finding> {
        let answer = client(self.subject).report_heartbeat(scoped(self.subject, beat)).await;
        done("ReportHeartbeat", answer)
    }
}

fn client(subject: &Subject) -> Client {
    WorkerSchedulerClient::new(subject.channel())
}

/// The message in the run's tenant and workspace.
pub(crate) fn scoped<T>(subject: &Subject, message: T) -> Request<T> {
    in_scope(message, &subject.options.tenant, &subject.options.workspace)
}

fn in_scope<T>(message: T, tenant: &str, workspace: &str) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in [(wire::TENANT_HEADER, tenant), (wire::WORKSPACE_HEADER, workspace)] {
        if let Ok(value) = MetadataValue::try_from(value) {
            request.metadata_mut().insert(name, value);
        }
    }
    request
}

fn task(queue: &str) -> SubmitTask {
    SubmitTask {
        queue: queue.to_owned(),
        payload: Bytes::from_static(br#"{"n":1}"#),
        ..SubmitTask::default()
    }
}

async fn submit(subject: &Subject, task: SubmitTask) -> Result<String, Finding> {
    let answer =
        client(subject).submit_tasks(scoped(subject, SubmitTasksRequest { tasks: vec![task] })).await;
    first_id(done("SubmitTasks", answer)?.tasks)
}

fn first_id(tasks: Vec<wire::grpc::SubmittedTask>) -> Result<String, Finding> {
    match tasks.into_iter().next() {
        Some(task) if task.problem.is_none() && !task.task_id.is_empty() => Ok(task.task_id),
        other => Err(Finding::broken(format!("SubmitTasks did not accept a task: {other:?}"))),
    }
}

/// Expects that a call succeeds.
pub(crate) fn done<T>(call: &str, answer: Result<Response<T>, Status>) -> Result<T, Finding> {
    answer
        .map(Response::into_inner)
        .map_err(|status| Finding::broken(format!("{call} was refused: {}", format_status(&status))))
}

/// Expects that a call is refused with one of these codes.
pub(crate) fn refused<T>(call: &str, answer: Result<T, Status>, codes: &[Code]) -> Result<(), Finding> {
    match answer {
        Err(status) if codes.contains(&status.code()) => Ok(()),
        Err(status) => {
            Err(Finding::broken(format!("{call} was refused with {}, not {codes:?}", format_status(&status))))
        }
        Ok(_) => Err(Finding::broken(format!("{call} was answered OK, and {codes:?} was expected"))),
    }
}

pub(crate) fn format_status(status: &Status) -> String {
    format!("{:?} {:?}", status.code(), short(status.message()))
}

fn verdict(answer: &UpdateTaskStatusResponse, verdict: Verdict) -> Result<(), Finding> {
    must(answer.verdict() == verdict, || {
        format!("UpdateTaskStatus answered {:?}, and {verdict:?} was expected", answer.verdict())
    })
}

fn committed(answer: &UpdateTaskStatusResponse, state: TaskState) -> Result<(), Finding> {
    verdict(answer, Verdict::Committed)?;
    must(answer.task_state() == state, || {
        format!("UpdateTaskStatus answered {:?}, and {state:?} was expected", answer.task_state())
    })
}
