//! A worker makes itself known, says what it offers, and leaves.

use std::collections::HashMap;

use serde_json::Value;
use tonic::Code;
use wire::grpc::{
    LeaseTaskRequest, RegisterWorkerRequest, ResourceLimits, TaskState, UnregisterWorkerRequest, Verdict,
    WorkerCapabilities, WorkerState, WorkerStats,
};

use super::{Worker, client, done, refused, scoped, submit, task, verdict};
use crate::answer::Answer;
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(
        &["S3-9", "S3-30"],
        "RegisterWorker answers with how often to beat and how long to poll",
        |s| Box::pin(registers(s)),
    ),
    Check::new(
        &["S3-14", "S3-15", "S3-16", "S3-28"],
        "what a worker says of itself is kept and shown",
        |s| Box::pin(kept(s)),
    ),
    Check::new(&["S3-23", "S3-24", "S3-37"], "a heartbeat refreshes state and stats of its worker", |s| {
        Box::pin(refreshed(s))
    }),
    Check::new(&["S3-23"], "a DRAINING worker is offered nothing", |s| Box::pin(draining(s))),
    Check::new(&["S3-25"], "a session that was replaced is told should_shutdown", |s| Box::pin(replaced(s))),
    Check::new(&["S3-33"], "an unregistered worker that asks for tasks is refused", |s| {
        Box::pin(unregistered(s))
    }),
    Check::new(
        &["S3-13", "S3-26"],
        "UnregisterWorker gives leases back at no cost, and may be repeated",
        |s| Box::pin(leaves(s)),
    ),
];

async fn registers(subject: &Subject) -> Result<(), Finding> {
    let request = RegisterWorkerRequest { worker_id: subject.worker(), ..RegisterWorkerRequest::default() };
    let answer = done("RegisterWorker", client(subject).register_worker(scoped(subject, request)).await)?;
    for (name, span) in [
        ("heartbeat_interval", answer.heartbeat_interval),
        ("heartbeat_timeout", answer.heartbeat_timeout),
        ("long_poll_timeout", answer.long_poll_timeout),
    ] {
        let some = span.is_some_and(|span| span.seconds > 0 || span.nanos > 0);
        must(some, || format!("`{name}` of RegisterWorkerResponse should be a time span"))?;
    }
    Ok(())
}

/// What the operator sees of a worker.
async fn known(subject: &Subject, worker: &str) -> Result<Answer, Finding> {
    let answer = subject.get("/v1/workers").await?;
    if matches!(answer.status, 404 | 405 | 501) {
        return Err(Finding::Skipped(format!(
            "workers are shown by {}, which answered {}",
            answer.call, answer.status
        )));
    }
    let mut list = answer.is(200)?.get("workers").as_array().cloned().unwrap_or_default().into_iter();
    let body = list.find(|known| known["workerId"] == worker).unwrap_or(Value::Null);
    Ok(Answer { raw: body.to_string(), body, ..answer })
}

async fn kept(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker { subject, id: subject.worker() };
    let resources = ResourceLimits { cpu_cores: 3.5, memory_bytes: 1 << 33, disk_bytes: 1 << 40 };
    let request = RegisterWorkerRequest {
        capabilities: Some(WorkerCapabilities { max_concurrent_executions: 4, resources: Some(resources) }),
        platform_properties: HashMap::from([("OSFamily".to_owned(), "Linux".to_owned())]),
        ..worker.registration()
    };
    worker.register_as(request).await?;
    let shown = known(subject, &worker.id).await?;
    let field = |name: &str| format!("/registration/{name}");
    shown.has(&field("maxConcurrentExecutions"), 4)?.has(&field("cpuCores"), 3.5)?;
    shown.has(&field("memoryBytes"), 1_u64 << 33)?.has(&field("diskBytes"), 1_u64 << 40)?;
    shown.has(&field("properties/OSFamily"), "Linux")?.has(&field("state"), "IDLE")?;
    shown.time(&field("registeredAt"))?;
    shown.time("lastHeartbeatAt")?;
    Ok(())
}

async fn refreshed(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let stats = WorkerStats { active_tasks: 2, total_completed: 30, total_failed: 4 };
    let mut beat = worker.beat();
    beat.state = WorkerState::Busy.into();
    beat.stats = Some(stats);
    let answer = worker.heartbeat(beat).await?;
    must(answer.registered && !answer.should_shutdown, || format!("ReportHeartbeat answered {answer:?}"))?;
    let shown = known(subject, &worker.id).await?;
    shown.has("/registration/state", "BUSY")?.has("/registration/activeTasks", 2)?;
    shown.has("/registration/totalCompleted", 30)?.has("/registration/totalFailed", 4)?;
    Ok(())
}

async fn draining(subject: &Subject) -> Result<(), Finding> {
    let (worker, queue) = (Worker::register(subject).await?, subject.queue());
    submit(subject, task(&queue)).await?;
    let mut beat = worker.beat();
    beat.state = WorkerState::Draining.into();
    worker.heartbeat(beat).await?;
    let tasks = worker.poll(worker.ask(&queue)).await?;
    must(tasks.is_empty(), || "a DRAINING worker was given a task".into())
}

async fn replaced(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    for session in ["old", "new"] {
        let session_id = session.to_owned();
        worker.register_as(RegisterWorkerRequest { session_id, ..worker.registration() }).await?;
    }
    let mut beat = worker.beat();
    beat.session_id = "old".to_owned();
    let answer = worker.heartbeat(beat.clone()).await?;
    must(answer.should_shutdown, || "the old session was not told should_shutdown".into())?;
    beat.session_id = "new".to_owned();
    let answer = worker.heartbeat(beat).await?;
    must(!answer.should_shutdown && answer.registered, || format!("the new session was told {answer:?}"))
}

async fn unregistered(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker { subject, id: subject.worker() };
    let queue = subject.queue();
    submit(subject, task(&queue)).await?;
    let poll = LeaseTaskRequest { timeout_seconds: 1, ..worker.ask(&queue) };
    let answer = client(subject).lease_task(scoped(subject, poll)).await;
    refused("LeaseTask of an unregistered worker", answer, &[Code::FailedPrecondition])?;
    worker.register_as(worker.registration()).await?;
    worker.lease(&queue).await?;
    Ok(())
}

async fn leaves(subject: &Subject) -> Result<(), Finding> {
    let (worker, queue) = (Worker::register(subject).await?, subject.queue());
    let held = worker.leased(&queue).await?;
    let leave =
        UnregisterWorkerRequest { worker_id: worker.id.clone(), ..UnregisterWorkerRequest::default() };
    for _ in 0..2 {
        let answer = client(subject).unregister_worker(scoped(subject, leave.clone())).await;
        done("UnregisterWorker", answer)?;
    }
    let answer = client(subject).lease_task(scoped(subject, worker.ask(&queue))).await;
    refused("LeaseTask after UnregisterWorker", answer, &[Code::FailedPrecondition])?;
    verdict(&worker.send(worker.completed(&held, "1")).await?, Verdict::Cancelled)?;
    let other = Worker::register(subject).await?;
    let again = other.lease(&queue).await?;
    must(again.task_id == held.task_id, || "the task that was given back did not come again".into())?;
    let answer = other.send(other.completed(&again, "1")).await?;
    super::committed(&answer, TaskState::Completed)
}
