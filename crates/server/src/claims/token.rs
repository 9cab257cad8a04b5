//! Verifies lease tokens: a token is valid for one worker, one job and, in a report, one attempt.

use authority::{LeaseRef, TaskId};

use crate::convert::names::{name, reported_name};
use crate::convert::{Code, Problem, Scoped, parse_task_id};
use crate::edge::auth::Caller;

/// The name of one attempt at a job.
pub(super) fn attempt_id(task: TaskId, attempt: u32) -> String {
    format!("{task}:{attempt}")
}

/// The lease that the token stands for, if it was given to this worker for this job, in a queue of the caller's.
pub(super) async fn lease(
    call: &Scoped,
    caller: &Caller,
    worker_id: &str,
    job_id: &str,
    token: &str,
) -> Result<LeaseRef, Problem> {
    let worker = name("worker_id", worker_id)?;
    let lease = call.app.lease_ids.verify(token, &call.scope, &worker).ok_or_else(|| {
        let detail = "lease_token: is damaged, made up, or belongs to another worker";
        Problem::new(Code::BadLeaseId, detail)
    })?;
    if parse_task_id(job_id) != Some(lease.task) {
        let detail = "job_id: is not the job that the lease token was given for";
        return Err(Problem::new(Code::WrongTask, detail));
    }
    caller.check_held(&call.app.handle, &lease).await?;
    Ok(lease)
}

/// Checks what a report names besides its lease: the attempt, and the message that the worker acknowledges.
pub(super) fn check_report(
    lease: &LeaseRef,
    attempt_id: &str,
    stream: Option<&str>,
    message_id: Option<&str>,
) -> Result<(), Problem> {
    if attempt_id != self::attempt_id(lease.task, lease.attempt) {
        let detail = "attempt_id: is not the attempt that the lease token was given for";
        return Err(Problem::new(Code::WrongAttempt, detail));
    }
    reported_name("stream", stream)?;
    reported_name("message_id", message_id)?;
    Ok(())
}
