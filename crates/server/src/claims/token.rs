//! Verifies lease tokens: a token is valid for one worker, one job and, in a report, one attempt.

use authority::{LeaseRef, Scope, TaskId};

use crate::app::App;
use crate::convert::ids::parse_task_id;
use crate::convert::names::name;
use crate::convert::problem::{Code, Problem};

/// The name of one attempt at a job.
pub(super) fn attempt_id(task: TaskId, attempt: u32) -> String {
    format!("{task}:{attempt}")
}

/// The lease that the token stands for.
pub(super) fn lease(
    app: &App,
    scope: &Scope,
    worker_id: &str,
    job_id: &str,
    lease_token: &str,
) -> Result<LeaseRef, Problem> {
    let worker = name("worker_id", worker_id)?;
    let lease = app.lease_ids().verify(lease_token, scope, &worker).ok_or_else(|| {
        let detail = "lease_token: is damaged, made up, or belongs to another worker";
        Problem::new(Code::BadLeaseId, detail)
    })?;
    if parse_task_id(job_id) == Some(lease.task) {
        Ok(lease)
    } else {
        Err(Problem::new(Code::WrongTask, "job_id: is not the job that the lease token was given for"))
    }
}

/// The lease that the token stands for, if it was given for this attempt.
pub(super) fn attempt(lease: LeaseRef, attempt_id: &str) -> Result<LeaseRef, Problem> {
    if attempt_id == self::attempt_id(lease.task, lease.attempt) {
        Ok(lease)
    } else {
        let detail = "attempt_id: is not the attempt that the lease token was given for";
        Err(Problem::new(Code::WrongAttempt, detail))
    }
}
