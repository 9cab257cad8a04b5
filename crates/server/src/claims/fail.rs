//! POST /internal/worker/fail: a worker says that its job failed. What follows is the coordinator's matter.

use authority::{Category, Outcome, TaskError};
use wire::{ClaimProblem, FailJob, JobFailed};

use super::refusal::Refusal;
use super::token;
use crate::convert::names::{reported_message, reported_name};
use crate::convert::report_details::Details;
use crate::convert::{Problem, Scoped, report, to_timestamp};
use crate::edge::auth::Caller;
use crate::edge::{Fails, In, Out};

/// Report that a job failed.
#[utoipa::path(
    post,
    path = "/internal/worker/fail",
    tag = "Claims",
    request_body = FailJob,
    responses(
        (status = 200, description = "Accepted, now or earlier", body = JobFailed),
        (status = 403, description = "Not this worker's lease, job or attempt", body = ClaimProblem),
        (status = 404, description = "Unknown job", body = ClaimProblem),
        (status = 409, description = "The lease is over (`ack` is true); or a conflicting report", body = ClaimProblem),
        Fails<400, ClaimProblem>, Fails<503, ClaimProblem>
    )
)]
pub(crate) async fn fail(
    call: Result<Scoped, Problem>,
    caller: Caller,
    body: Result<In<FailJob>, Problem>,
) -> Result<Out<JobFailed>, Refusal<true>> {
    let (call, In(body)) = (call?, body?);
    let lease = token::lease(&call, &caller, &body.worker_id, &body.job_id, &body.lease_token).await?;
    token::check_report(&lease, &body.attempt_id, body.stream.as_deref(), body.message_id.as_deref())?;
    let error = &body.error;
    // The contract knows no categories; this is the one that another attempt may help by default.
    let task_error = TaskError {
        category: Category::UserCode,
        code: reported_name("error.code", error.code.as_deref())?,
        message: reported_message(&error.message),
    };
    let details = Details { stack_trace: error.stack.as_deref(), ..Details::default() };
    let report = report::failure(lease, task_error, error.retryable, details)?;
    Ok(Out::ok(failed(report::committed(call.app.fail(&caller, report).await?)?)))
}

/// What became of the job, as it was recorded with the report.
fn failed(outcome: Outcome) -> JobFailed {
    let retry_at = match outcome {
        Outcome::RetryAt(at) => Some(to_timestamp(at)),
        _ => None,
    };
    let dlq = matches!(outcome, Outcome::Failed | Outcome::Dead(_));
    JobFailed { ok: true, ack: true, requeued: retry_at.is_some(), dlq, retry_at }
}

#[cfg(test)]
mod tests {
    use authority::{DeadReason, Time};

    use super::*;

    #[test]
    fn s2_25_a_failed_job_is_requeued_or_a_dead_letter_and_never_both() {
        let told = |outcome| {
            let failed = failed(outcome);
            (failed.ok, failed.ack, failed.requeued, failed.dlq)
        };
        assert_eq!(told(Outcome::RetryAt(Time(1))), (true, true, true, false));
        assert_eq!(told(Outcome::Failed), (true, true, false, true));
        assert_eq!(told(Outcome::Dead(DeadReason::Cancelled)), (true, true, false, true));
    }
}
