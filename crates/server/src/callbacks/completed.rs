//! POST /v1/tasks/{taskId}/completed: how an attempt ended. What follows is the coordinator's matter.

use authority::command::{ReportCompletion, ReportFailure, Verdict};
use authority::{Category, LeaseRef, Outcome, TaskError};
use wire::{CallbackOutcome, CallbackProblem, CallbackState, CompletionAcknowledged, TaskCompleted};

use super::attempt;
use super::caller::{CallbackFails, Caller};
use super::refusal::{Refusal, dead};
use crate::convert::names::{name, reported_message, reported_name};
use crate::convert::report_details::Details;
use crate::convert::task_json::category_from_wire;
use crate::convert::{Problem, report, to_timestamp};
use crate::edge::auth;
use crate::edge::{In, Out};

/// What a cancelled attempt is recorded with when it says no more. It is not the phase: that only this contract has.
const CANCELLED_MESSAGE: &str = "cancelled";

/// Report how an attempt ended.
#[utoipa::path(
    post,
    path = "/v1/tasks/{taskId}/completed",
    tag = "Callbacks",
    params(("taskId" = String, Path), ("authorization" = String, Header, description = "Bearer {taskToken}")),
    request_body = TaskCompleted,
    responses(
        (status = 200, description = "Accepted, now or earlier", body = CompletionAcknowledged),
        (status = 409, description = "`attempt_mismatch`, `task_already_terminal`, `attempt_already_started` or \
            `attempt_already_completed`: the report is ignored", body = CallbackProblem),
        (status = 413, description = "`payload_too_large`", body = CallbackProblem),
        (status = 424, description = "`outputs_missing`: upload the outputs of the execution and report again", body = CallbackProblem),
        CallbackFails
    )
)]
pub(crate) async fn completed(
    caller: Caller,
    body: Result<In<TaskCompleted>, Problem>,
) -> Result<Out<CompletionAcknowledged>, Refusal> {
    let In(body) = body?;
    caller.measure_clock(body.completed_at);
    let worker = name("workerId", &body.worker_id)?;
    check(&body)?;
    let attempt = body.attempt;
    let command = command(caller.lease.clone(), body)?;
    attempt::admit(&caller, attempt, &worker).await?;
    let verdict = match command {
        Report::Completion(report) => caller.app.complete(&auth::Caller::default(), report).await?,
        Report::Failure(report) => caller.app.handle.fail(report).await?,
    };
    match verdict {
        Verdict::Committed(Outcome::Discarded) | Verdict::Cancelled => Err(attempt::lost(&caller).await?),
        Verdict::Rejected(why) => Err(why.into()),
        Verdict::Committed(outcome) => {
            let (final_state, retry_at) = became(outcome);
            let answer = CompletionAcknowledged {
                acknowledged: true,
                final_state,
                server_time: to_timestamp(caller.app.handle.now()),
                retry_at,
            };
            Ok(Out::ok(answer))
        }
    }
}

/// What belongs to another outcome would be lost without a word, so it is refused.
fn check(body: &TaskCompleted) -> Result<(), Problem> {
    let is = |outcome| body.outcome == outcome;
    let cancelled = is(CallbackOutcome::Cancelled);
    let has_phase = body.cancelled_during_phase.as_ref().is_some_and(|phase| !phase.is_empty());
    let misplaced = [
        ("output", body.output.is_some() && !is(CallbackOutcome::Succeeded), "SUCCEEDED"),
        ("error", body.error.is_some() && is(CallbackOutcome::Succeeded), "FAILED"),
        ("cancelledDuringPhase", has_phase && !cancelled, "CANCELLED"),
        ("partialProgress", body.partial_progress.is_some() && is(CallbackOutcome::Succeeded), "FAILED"),
    ];
    match misplaced.into_iter().find(|(_, misplaced, _)| *misplaced) {
        Some((field, _, outcome)) => Err(Problem::field(field, format!("belongs to the outcome {outcome}"))),
        None => Ok(()),
    }
}

enum Report {
    Completion(ReportCompletion),
    Failure(ReportFailure),
}

fn command(lease: LeaseRef, body: TaskCompleted) -> Result<Report, Problem> {
    let details = Details {
        metrics: body.metrics.as_ref(),
        stack_trace: body.error.as_ref().and_then(|error| error.stack_trace.as_deref()),
        cancelled_during_phase: body.cancelled_during_phase.as_deref(),
        partial_progress: body.partial_progress.as_ref(),
    };
    let (error, retryable) = match (body.outcome, &body.error) {
        (CallbackOutcome::Succeeded, _) => {
            return report::completion(lease, "output", body.output, details).map(Report::Completion);
        }
        (CallbackOutcome::Failed, None) => {
            return Err(Problem::field("error", "must be there when the outcome is FAILED"));
        }
        (CallbackOutcome::Failed, Some(error)) => {
            let task_error = TaskError {
                category: category_from_wire(error.category),
                code: reported_name("error.code", error.code.as_deref())?,
                message: reported_message(&error.message),
            };
            (task_error, error.retryable)
        }
        (CallbackOutcome::Cancelled, error) => {
            (cancelled(error.as_ref().map(|error| error.message.as_str())), None)
        }
    };
    report::failure(lease, error, retryable, details).map(Report::Failure)
}

/// How an attempt ended that was cancelled.
pub(crate) fn cancelled(said: Option<&str>) -> TaskError {
    let message = reported_message(said.unwrap_or(CANCELLED_MESSAGE));
    TaskError { category: Category::Cancelled, code: None, message }
}

/// What became of the task by this report, in the words of this contract, and when it is tried again.
fn became(outcome: Outcome) -> (CallbackState, Option<jiff::Timestamp>) {
    match outcome {
        Outcome::Completed => (CallbackState::Succeeded, None),
        Outcome::RetryAt(at) => (CallbackState::RetryWait, Some(to_timestamp(at))),
        Outcome::Dead(reason) => (dead(reason), None),
        Outcome::Failed | Outcome::Discarded => (CallbackState::Failed, None),
    }
}

#[cfg(test)]
mod tests {
    use authority::{DeadReason, Time};

    use super::*;

    #[test]
    fn c3_every_outcome_has_its_name() {
        let state = |outcome| became(outcome).0;
        assert_eq!(state(Outcome::Completed), CallbackState::Succeeded);
        assert_eq!(state(Outcome::Failed), CallbackState::Failed);
        assert_eq!(state(Outcome::RetryAt(Time(1))), CallbackState::RetryWait);
        assert_eq!(state(Outcome::Dead(DeadReason::Cancelled)), CallbackState::Cancelled);
        assert_eq!(state(Outcome::Dead(DeadReason::Deadline)), CallbackState::Failed);
        assert_eq!(became(Outcome::RetryAt(Time(1_000))).1, Some(to_timestamp(Time(1_000))));
    }
}
