//! POST /internal/worker/fail: a worker says that its job failed. What follows is the coordinator's matter.

use authority::{Category, Outcome, TaskError};
use axum::extract::State;
use axum::http::StatusCode;
use wire::{FailJob, JobFailed};

use super::refusal::Refusal;
use super::token;
use crate::app::App;
use crate::convert::names::{reported_message, reported_name};
use crate::convert::problem::{Problem, shortened};
use crate::convert::report;
use crate::convert::scope::InScope;
use crate::convert::time::to_timestamp;
use crate::edge::json::{In, Out};

/// Report that a job failed.
#[utoipa::path(
    post,
    path = "/internal/worker/fail",
    tag = "Claims",
    request_body = FailJob,
    responses(
        (status = 200, description = "Accepted, now or earlier", body = JobFailed),
        (status = 400, body = wire::ClaimProblem),
        (status = 403, description = "Not this worker's lease, job or attempt", body = wire::ClaimProblem),
        (status = 404, description = "Unknown job", body = wire::ClaimProblem),
        (status = 409, description = "The lease is over (`ack` is true); or a conflicting report", body = wire::ClaimProblem),
        (status = 503, body = wire::ClaimProblem)
    )
)]
pub(crate) async fn fail(
    State(app): State<App>,
    scope: Result<InScope, Problem>,
    body: Result<In<FailJob>, Problem>,
) -> Result<Out<JobFailed>, Refusal> {
    let report = async {
        let (InScope(scope), In(body)) = (scope?, body?);
        let lease = token::lease(&app, &scope, &body.worker_id, &body.job_id, &body.lease_token)?;
        let lease = token::attempt(lease, &body.attempt_id)?;
        reported_name("stream", body.stream.as_deref())?;
        reported_name("message_id", body.message_id.as_deref())?;
        // The contract knows no categories; this is the one that another attempt may help by default.
        let error = TaskError {
            category: Category::UserCode,
            code: reported_name("error.code", body.error.code.as_deref())?,
            message: reported_message(&body.error.message),
        };
        if let Some(stack) = &body.error.stack {
            tracing::debug!(task = %lease.task, attempt = lease.attempt, stack = shortened(stack), "a job failed");
        }
        let verdict = app.handle().fail(report::failure(lease, error, body.error.retryable)?).await?;
        Ok(Out(StatusCode::OK, failed(report::committed(verdict)?)))
    };
    report.await.map_err(Refusal::on_report)
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
