//! UpdateTaskStatus: an attempt begins, is done, fails, or is given back.

use bytes::Bytes;
use serde_json::json;
use tonic::Code;
use wire::grpc::{ActionResult, ErrorCategory, TaskState, TaskStatus, UpdateTaskStatusRequest};

use super::{Worker, committed, refused};
use crate::finding::must;
use crate::{Check, Finding, Subject};

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["S3-11", "S3-22"], "EXECUTING is answered with the end of the lease", |s| {
        Box::pin(executing(s))
    }),
    Check::new(&["S3-11", "S3-36"], "COMPLETED stores the result and ends the lease", |s| {
        Box::pin(completed(s))
    }),
    Check::new(&["S3-20", "S3-36"], "an ActionResult is kept", |s| Box::pin(action_result(s))),
    Check::new(&["S3-36"], "FAILED stores the error and ends the lease", |s| Box::pin(failed(s))),
    Check::new(&["S3-36"], "a failure with attempts left is tried again", |s| Box::pin(retried(s))),
    Check::new(&["S3-22"], "EXECUTING tells of a cancel", |s| Box::pin(cancel(s))),
    Check::new(&["S3-20", "S3-21"], "a malformed report is INVALID_ARGUMENT and changes nothing", |s| {
        Box::pin(malformed(s))
    }),
    Check::new(&["S3-35"], "a lease that is given back costs its task nothing", |s| Box::pin(released(s))),
];

async fn executing(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue()).await?;
    let answer = worker.send(worker.update(&held, TaskStatus::Executing)).await?;
    must(answer.lease_expires_at.is_some() && !answer.should_cancel, || {
        format!("EXECUTING was answered {answer:?}")
    })?;
    subject.task(&held.task_id).await?.has("state", "LEASED")?;
    Ok(())
}

async fn completed(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue()).await?;
    committed(&worker.send(worker.completed(&held, r#"{"sum":3}"#)).await?, TaskState::Completed)?;
    let shown = subject.task(&held.task_id).await?;
    shown.has("state", "COMPLETED")?.has("result", json!({"sum": 3}))?.has_no("lease")?;
    Ok(())
}

async fn action_result(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue()).await?;
    let result = ActionResult { exit_code: 7, stdout_raw: b"ok".to_vec(), ..ActionResult::default() };
    let report =
        UpdateTaskStatusRequest { result: Some(result), ..worker.update(&held, TaskStatus::Completed) };
    committed(&worker.send(report).await?, TaskState::Completed)?;
    subject.task(&held.task_id).await?.has("/result/exitCode", 7)?.text("/result/actionResult")?;
    Ok(())
}

async fn failed(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue()).await?;
    let report = UpdateTaskStatusRequest {
        error_category: ErrorCategory::Configuration.into(),
        error_code: "E1".to_owned(),
        ..worker.failed(&held, "no such command", None)
    };
    committed(&worker.send(report).await?, TaskState::Failed)?;
    let shown = subject.task(&held.task_id).await?;
    shown.has("state", "FAILED")?.has_no("lease")?.has("/error/message", "no such command")?;
    shown.has("/error/category", "CONFIGURATION")?.has("/error/code", "E1")?;
    Ok(())
}

async fn retried(subject: &Subject) -> Result<(), Finding> {
    let queue =
        subject.queue_with(json!({"maxAttempts": 2, "backoff": {"initialMs": 0, "jitter": 0}})).await?;
    let worker = Worker::register(subject).await?;
    let first = worker.leased(&queue).await?;
    let answer = worker.send(worker.failed(&first, "once", None)).await?;
    committed(&answer, TaskState::Waiting)?;
    must(answer.retry_at.is_some(), || "`retry_at` is missing".into())?;
    let second = worker.lease(&queue).await?;
    must((&second.task_id, second.attempt) == (&first.task_id, 2), || format!("then came {second:?}"))?;
    committed(&worker.send(worker.failed(&second, "twice", None)).await?, TaskState::Failed)
}

async fn cancel(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue()).await?;
    subject.cancel(&held.task_id, "enough").await?;
    let answer = worker.send(worker.update(&held, TaskStatus::Executing)).await?;
    must(answer.should_cancel && answer.cancel_reason == "enough", || {
        format!("EXECUTING was answered {answer:?}")
    })?;
    let report = UpdateTaskStatusRequest {
        error_category: ErrorCategory::Cancelled.into(),
        ..worker.failed(&held, "stopped", None)
    };
    committed(&worker.send(report).await?, TaskState::Dead)
}

async fn malformed(subject: &Subject) -> Result<(), Finding> {
    let worker = Worker::register(subject).await?;
    let held = worker.leased(&subject.queue()).await?;
    for report in [
        worker.update(&held, TaskStatus::Unknown),
        UpdateTaskStatusRequest { status: 99, ..worker.update(&held, TaskStatus::Completed) },
        UpdateTaskStatusRequest { result_json: Bytes::from_static(b"{"), ..worker.completed(&held, "") },
        UpdateTaskStatusRequest { release: true, ..worker.completed(&held, "1") },
        UpdateTaskStatusRequest { worker_id: String::new(), ..worker.completed(&held, "1") },
    ] {
        refused("a malformed UpdateTaskStatus", worker.try_send(report).await, &[Code::InvalidArgument])?;
    }
    subject.task(&held.task_id).await?.has("state", "LEASED")?;
    committed(&worker.send(worker.completed(&held, "1")).await?, TaskState::Completed)
}

async fn released(subject: &Subject) -> Result<(), Finding> {
    let queue = subject.queue_with(json!({"maxAttempts": 1})).await?;
    let worker = Worker::register(subject).await?;
    let first = worker.leased(&queue).await?;
    worker.send(worker.released(&first)).await?;
    let second = worker.lease(&queue).await?;
    must((&second.task_id, second.attempt) == (&first.task_id, 2), || format!("then came {second:?}"))?;
    must(second.fencing_token > first.fencing_token, || "the fencing token did not rise".into())?;
    committed(&worker.send(worker.completed(&second, "1")).await?, TaskState::Completed)
}
