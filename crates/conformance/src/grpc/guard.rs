//! Reports that come twice, or in another's name, and the statuses that they get.

use tonic::Code;
use wire::grpc::{TaskState, TaskStatus, UpdateTaskStatusRequest};

use super::{Worker, committed, in_scope, refused};
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S3-35"], "only the worker with the lease may speak of its attempt", |s| {
        Box::pin(only_the_holder(s))
    }),
    Check::new(&["S3-35", "S3-40"], "a lease that was never granted is PERMISSION_DENIED", |s| {
        Box::pin(forged(s))
    }),
    Check::new(&["S3-40"], "a report on an unknown task is NOT_FOUND", |s| Box::pin(unknown(s))),
    Check::new(&["S3-40"], "a conflicting report of the same attempt is FAILED_PRECONDITION", |s| {
        Box::pin(conflicting_report(s))
    }),
    Check::new(&["S3-22"], "a repeated report gets its verdict again", |s| Box::pin(repeated(s))),
    Check::new(&["S3-35"], "a lease is no good in another tenant", |s| Box::pin(other_tenant(s))),
];

async fn only_the_holder(subject: &Subject) -> Result<(), Finding> {
    let (worker, other) = (Worker::register(subject).await?, Worker::register(subject).await?);
    let held = worker.leased(&subject.queue()).await?;
    for status in [TaskStatus::Executing, TaskStatus::Completed, TaskStatus::Failed] {
        let answer = other.try_send(other.update(&held, status)).await;
        refused("a report with another worker's lease", answer, &[Code::PermissionDenied])?;
    }
    subject.task(&held.task_id).await?.has("state", "LEASED")?;
    committed(&worker.send(worker.completed(&held, "1")).await?, TaskState::Completed)
}

async fn forged(subject: &Subject) -> Result<(), Finding> {
    let (worker, queue) = (Worker::register(subject).await?, subject.queue());
    let (held, other) = (worker.leased(&queue).await?, worker.leased(&queue).await?);
    for lease_id in ["x".to_owned(), format!("{}x", held.lease_id), other.lease_id.clone()] {
        let report = UpdateTaskStatusRequest { lease_id, ..worker.completed(&held, "1") };
        refused("a report with a made-up lease", worker.try_send(report).await, &[Code::PermissionDenied])?;
    }
    subject.task(&held.task_id).await?.has("state", "LEASED")?;
    Ok(())
}

async fn unknown(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let report = UpdateTaskStatusRequest {
        task_id: "01900000-0000-7000-8000-000000000001".to_owned(),
        worker_id: worker.id.clone(),
        status: TaskStatus::Completed.into(),
        ..UpdateTaskStatusRequest::default()
    };
    refused("a report on an unknown task", worker.try_send(report).await, &[Code::NotFound])
}

async fn conflicting_report(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue()).await?;
    committed(&worker.send(worker.completed(&held, "1")).await?, TaskState::Completed)?;
    for story in [worker.completed(&held, "2"), worker.failed(&held, "no", None)] {
        refused("a conflicting report", worker.try_send(story).await, &[Code::FailedPrecondition])?;
    }
    subject.task(&held.task_id).await?.has("state", "COMPLETED")?.has("result", 1)?;
    Ok(())
}

async fn repeated(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue()).await?;
    for result in [r#"{"a":1,"b":[2]}"#, r#"{"a":1,"b":[2]}"#, r#"{ "b":[2.0], "a":1 }"#] {
        committed(&worker.send(worker.completed(&held, result)).await?, TaskState::Completed)?;
    }
    Ok(())
}

async fn other_tenant(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue()).await?;
    let report = in_scope(worker.completed(&held, "1"), &subject.name("tenant"), &subject.options.workspace);
    let answer = super::client(subject).update_task_status(report).await;
    refused("a report in another tenant", answer, &[Code::PermissionDenied, Code::NotFound])?;
    committed(&worker.send(worker.completed(&held, "1")).await?, TaskState::Completed)
}
