//! UpdateTaskStatus: a worker reports that it begins, is done or failed, or gives its lease back. The stream converts its
//! reports here too.

use std::sync::Arc;

use authority::command::{
    ExtendAnswer, ExtendLease, ReleaseAnswer, ReleaseLease, ReportCompletion, ReportFailure, StartAnswer,
    StartAttempt,
};
use authority::event::ReleaseCause;
use authority::limits::MAX_INLINE_BYTES;
use authority::{Answer, Command, Digest, LeaseRef, Outcome, Rejection, ReportDetails, Scope, TaskError};
use coordinator::{Batch, BatchItem};
use tokio::time::Instant;
use tonic::Status;
use wire::grpc::{TaskState, TaskStatus, UpdateTaskStatusRequest, UpdateTaskStatusResponse, Verdict};

use super::reference;
use super::values::{cancel_reason, category, given, optional_name, state, timestamp};
use crate::app::{App, PinnedOutputs};
use crate::convert::names::reported_message;
use crate::convert::report_details::Details;
use crate::convert::task_json::{not_json, parse_json};
use crate::convert::{Code, Problem, content, report};
use crate::edge::auth::Caller;

pub(super) async fn update(
    app: &App,
    scope: &Scope,
    caller: &Caller,
    request: &UpdateTaskStatusRequest,
) -> Result<UpdateTaskStatusResponse, Status> {
    caller.check_worker(&request.worker_id)?;
    let lease = if request.lease_id.is_empty() {
        reference::by_grants(app, scope, caller, request).await?
    } else {
        let lease = reference::by_lease_id(app, scope, &request.worker_id, request);
        let lease = lease.map_err(Problem::on_report)?;
        caller.check_held(&app.handle, &lease).await.map_err(Problem::on_report)?;
        lease
    };
    let decided = async {
        let mut batch = Batch::new();
        let asked = items(lease.clone(), request, &mut batch)?;
        let _pinned = check_outputs(app, caller, &batch, Instant::now()).await?;
        let answers = app.handle.decide(batch).await?;
        answer(asked, &mut answers.into_iter())
    };
    let answer = decided.await.map_err(Problem::on_report)?;
    if answer.verdict() == Verdict::Committed {
        app.note_end(caller, &lease);
    }
    Ok(answer)
}

/// Checks the outputs of what a report asks for, if it asks for a completion or a failure.
pub(super) async fn check_outputs(
    app: &App,
    caller: &Caller,
    items: &Batch,
    received_at: Instant,
) -> Result<PinnedOutputs, Problem> {
    match items.first() {
        Some(BatchItem::Command(Command::ReportCompletion(completion))) => {
            app.check_outputs(caller, completion, received_at).await
        }
        Some(BatchItem::Command(Command::ReportFailure(failure))) => {
            app.check_failure(caller, failure).await.map(|()| PinnedOutputs::default())
        }
        _ => Ok(PinnedOutputs::default()),
    }
}

/// What was asked, and so how its answers are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// Two items: the attempt begins, and its lease is extended.
    Start,
    Release,
    Report,
}

/// Adds the items that a report asks for.
pub(super) fn items(
    lease: LeaseRef,
    report: &UpdateTaskStatusRequest,
    items: &mut Batch,
) -> Result<Asked, Problem> {
    let status = TaskStatus::try_from(report.status).map_err(|_| {
        Problem::field("status", format!("{} is none of those that there are", report.status))
    })?;
    match status {
        TaskStatus::Unknown if report.release => {
            let release = ReleaseLease { lease, cause: ReleaseCause::Worker };
            items.push(BatchItem::Command(Command::ReleaseLease(release)));
            Ok(Asked::Release)
        }
        _ if report.release => {
            Err(Problem::field("release", "a lease that is given back has the status UNKNOWN"))
        }
        TaskStatus::Unknown => Err(Problem::field("status", "must be EXECUTING, COMPLETED or FAILED")),
        TaskStatus::Executing => {
            let started_by = lease.worker.clone();
            items.push(BatchItem::Command(Command::StartAttempt(StartAttempt {
                lease: lease.clone(),
                started_by,
            })));
            items.push(BatchItem::Command(Command::ExtendLease(ExtendLease { lease })));
            Ok(Asked::Start)
        }
        TaskStatus::Completed => {
            let completion = completion(lease, report)?;
            items.push(BatchItem::Command(Command::ReportCompletion(completion)));
            Ok(Asked::Report)
        }
        TaskStatus::Failed => {
            let failure = failure(lease, report)?;
            items.push(BatchItem::Command(Command::ReportFailure(failure)));
            Ok(Asked::Report)
        }
    }
}

/// The answer to what was asked. A report without authority is answered, not refused: it is no fault of the worker's.
pub(super) fn answer(
    asked: Asked,
    answers: &mut impl Iterator<Item = Answer>,
) -> Result<UpdateTaskStatusResponse, Problem> {
    match (asked, answers.next()) {
        (Asked::Report, Some(Answer::Reported(verdict))) => match report::committed(verdict) {
            Ok(outcome) => Ok(committed(outcome)),
            Err(problem) if problem.verdict == Some(wire::Verdict::Cancelled) => Ok(cancelled()),
            Err(problem) => Err(problem),
        },
        (Asked::Release, Some(Answer::Released(ReleaseAnswer::Over(after)))) => {
            Ok(UpdateTaskStatusResponse {
                task_state: state(after).into(),
                ..UpdateTaskStatusResponse::default()
            })
        }
        (Asked::Release, Some(Answer::Released(ReleaseAnswer::Rejected(why)))) => Err(why.into()),
        (Asked::Start, Some(Answer::Started(started))) => {
            let extended = answers.next();
            match (started, extended) {
                (_, None) => Err(unanswered()),
                (StartAnswer::Rejected(why), _) => Err(why.into()),
                (StartAnswer::AlreadyStarted(_), _) => Err(Rejection::WrongWorker.into()),
                (StartAnswer::Lost, _) | (_, Some(Answer::Extended(ExtendAnswer::Lost))) => Ok(cancelled()),
                (_, Some(Answer::Extended(ExtendAnswer::Rejected(why)))) => Err(why.into()),
                (
                    StartAnswer::Started | StartAnswer::Cancelled(_),
                    Some(Answer::Extended(ExtendAnswer::Extended { expires_at, cancel })),
                ) => Ok(UpdateTaskStatusResponse {
                    task_state: TaskState::Leased.into(),
                    lease_expires_at: Some(timestamp(expires_at)),
                    should_cancel: cancel.is_some(),
                    cancel_reason: cancel_reason(cancel),
                    ..UpdateTaskStatusResponse::default()
                }),
                _ => Err(unanswered()),
            }
        }
        _ => Err(unanswered()),
    }
}

fn committed(outcome: Outcome) -> UpdateTaskStatusResponse {
    let retry_at = match outcome {
        Outcome::RetryAt(at) => Some(timestamp(at)),
        _ => None,
    };
    UpdateTaskStatusResponse {
        verdict: Verdict::Committed.into(),
        task_state: outcome.state().map_or(TaskState::Unspecified, state).into(),
        retry_at,
        ..UpdateTaskStatusResponse::default()
    }
}

fn cancelled() -> UpdateTaskStatusResponse {
    UpdateTaskStatusResponse { verdict: Verdict::Cancelled.into(), ..UpdateTaskStatusResponse::default() }
}

/// The coordinator answers each item with its own kind of answer; anything else would be a bug in it.
fn unanswered() -> Problem {
    Problem::new(Code::OutcomeUnknown, "the coordinator gave no answer to this report")
}

/// The digest of a report's content; none where nothing is reported.
pub(super) fn digest(report: &UpdateTaskStatusRequest) -> Result<Option<Digest>, Problem> {
    match TaskStatus::try_from(report.status) {
        Ok(TaskStatus::Completed) => result(report).map(|(_, digest)| Some(digest)),
        Ok(TaskStatus::Failed) => Ok(Some(content::failure(&error(report)?))),
        _ => Ok(None),
    }
}

fn completion(lease: LeaseRef, report: &UpdateTaskStatusRequest) -> Result<ReportCompletion, Problem> {
    let (result, digest) = result(report)?;
    Ok(ReportCompletion { lease, digest, result, details: details(report)? })
}

fn result(report: &UpdateTaskStatusRequest) -> Result<(Arc<[u8]>, Digest), Problem> {
    let result: Arc<[u8]> = match &report.result {
        None if report.result_json.is_empty() => Arc::from(&b"null"[..]),
        None => Arc::from(&report.result_json[..]),
        Some(_) if !report.result_json.is_empty() => {
            return Err(Problem::field("result_json", "must not be given together with result"));
        }
        Some(result) => {
            let encoded = execution::result::encode(result);
            encoded.map_err(|error| Problem::field("result", error.to_string()))?.into()
        }
    };
    if result.len() > MAX_INLINE_BYTES {
        let detail =
            format!("the result must have at most {MAX_INLINE_BYTES} bytes, but has {}", result.len());
        return Err(Problem::new(Code::PayloadTooLarge, detail));
    }
    let digest = content::completion(&result).map_err(|fault| not_json("result_json", &fault))?;
    Ok((result, digest))
}

fn failure(lease: LeaseRef, report: &UpdateTaskStatusRequest) -> Result<ReportFailure, Problem> {
    let failure = report::failure(lease, error(report)?, report.retryable, Details::default())?;
    Ok(ReportFailure { details: details(report)?, ..failure })
}

fn error(report: &UpdateTaskStatusRequest) -> Result<TaskError, Problem> {
    Ok(TaskError {
        category: category(report.error_category)?,
        code: optional_name("error_code", &report.error_code)?,
        message: reported_message(&report.error_message),
    })
}

fn details(report: &UpdateTaskStatusRequest) -> Result<Option<Arc<ReportDetails>>, Problem> {
    let metrics = parse_json("metrics_json", &report.metrics_json)?;
    let partial_progress = parse_json("partial_progress_json", &report.partial_progress_json)?;
    let details = Details {
        metrics: metrics.as_ref(),
        stack_trace: given(&report.stack_trace),
        cancelled_during_phase: None,
        partial_progress: partial_progress.as_ref(),
    };
    Ok(details.bounded())
}
