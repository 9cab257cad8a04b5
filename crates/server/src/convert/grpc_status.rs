//! Converts problems to gRPC statuses and to the problems of items in a batch: a code by the kind of problem, its stable
//! name as the reason of the ErrorInfo, and a RetryInfo where a retry helps.

use std::collections::HashMap;
use std::time::Duration;

use axum::http::StatusCode;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use wire::{Verdict, grpc};

use crate::convert::{Problem, problem};

/// Who says so, in the ErrorInfo of a status.
const DOMAIN: &str = "lessor";

impl From<Problem> for Status {
    fn from(problem: Problem) -> Status {
        let code = code(problem.code);
        let verdict = problem.verdict.and_then(|verdict| match verdict {
            Verdict::Rejected => Some("REJECTED"),
            Verdict::Cancelled => Some("CANCELLED"),
            Verdict::Committed => None,
        });
        let wait = problem.retry_after();
        let told = problem.into_wire();
        let about = [
            ("verdict", verdict.map(str::to_owned)),
            ("field", told.field),
            ("taskId", told.task_id),
            ("state", told.state.map(|state| state.name().to_owned())),
            ("finishedAt", told.finished_at.map(|at| at.to_string())),
            ("purgedAt", told.purged_at.map(|at| at.to_string())),
            ("limit", told.limit),
        ];
        let about = about.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        status(code, &told.code, told.detail, about.collect(), &told.digests.unwrap_or_default(), wait)
    }
}

/// The worker has to do something first: register, or name its lease.
pub(crate) fn precondition(reason: &str, detail: impl Into<String>) -> Status {
    status(Code::FailedPrecondition, reason, detail.into(), HashMap::new(), &[], problem::RETRY_AFTER)
}

pub(crate) fn not_registered(worker: &str) -> Status {
    precondition(
        "not_registered",
        format!("{worker} is not registered here: call RegisterWorker, then go on"),
    )
}

pub(crate) fn registered_elsewhere(worker: &str) -> Status {
    let detail = format!(
        "{worker} is registered from another address: choose another worker_id, or wait until that worker leaves or is silent \
         for the heartbeat timeout"
    );
    precondition("registered_elsewhere", detail)
}

pub(crate) fn superseded(worker: &str) -> Status {
    precondition("superseded", format!("another session of {worker} has registered since: stop"))
}

/// What is wrong with one item of a batch.
pub(crate) fn item(problem: Problem) -> grpc::Problem {
    let status = code(problem.code) as i32;
    let told = problem.into_wire();
    grpc::Problem {
        status,
        code: told.code,
        detail: told.detail,
        field: told.field.unwrap_or_default(),
        digests: told.digests.unwrap_or_default(),
    }
}

fn status(
    code: Code,
    reason: &str,
    detail: String,
    about: HashMap<String, String>,
    missing: &[String],
    wait: Duration,
) -> Status {
    let mut details = ErrorDetails::with_error_info(reason, DOMAIN, about);
    for digest in missing {
        // As the Remote Execution API names missing blobs.
        details.add_precondition_failure_violation("MISSING", format!("blobs/{digest}"), "");
    }
    if matches!(code, Code::ResourceExhausted | Code::Unavailable) {
        details.set_retry_info(Some(wait));
    }
    Status::with_error_details(code, detail, details)
}

/// By the kind that the problem has over HTTP, so that both sides always agree on whose fault it is.
fn code(code: problem::Code) -> Code {
    match (code, code.status()) {
        (problem::Code::DedupConflict, _) => Code::AlreadyExists,
        (problem::Code::TaskPurged, _) => Code::NotFound,
        (_, StatusCode::UNAUTHORIZED) => Code::Unauthenticated,
        (_, StatusCode::FORBIDDEN | StatusCode::MISDIRECTED_REQUEST) => Code::PermissionDenied,
        (_, StatusCode::NOT_FOUND) => Code::NotFound,
        (_, StatusCode::METHOD_NOT_ALLOWED) => Code::Unimplemented,
        (_, StatusCode::REQUEST_TIMEOUT) => Code::DeadlineExceeded,
        (_, StatusCode::CONFLICT | StatusCode::GONE | StatusCode::FAILED_DEPENDENCY) => {
            Code::FailedPrecondition
        }
        (_, StatusCode::TOO_MANY_REQUESTS) => Code::ResourceExhausted,
        (_, StatusCode::SERVICE_UNAVAILABLE) => Code::Unavailable,
        (_, status) if status.is_client_error() => Code::InvalidArgument,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use authority::Rejection;
    use authority::command::Refusal;
    use coordinator::Unavailable;

    use super::*;

    #[test]
    fn s3_40_every_internal_result_has_its_status() {
        let table = [
            (Problem::field("x", "bad"), Code::InvalidArgument),
            (Problem::new(problem::Code::PayloadTooLarge, ""), Code::InvalidArgument),
            (Rejection::UnknownTask.into(), Code::NotFound),
            (Rejection::NeverGranted.into(), Code::PermissionDenied),
            (Rejection::WrongWorker.into(), Code::PermissionDenied),
            (Rejection::ConflictingReport.into(), Code::FailedPrecondition),
            (Unavailable::Stopped.into(), Code::Unavailable),
            (Unavailable::OutcomeUnknown.into(), Code::Unavailable),
            (Unavailable::NoSpace.into(), Code::Unavailable),
            (Unavailable::Overloaded.into(), Code::ResourceExhausted),
            (Refusal::QueueFull { max: 1 }.into(), Code::ResourceExhausted),
            (Refusal::TooManyTenants { tenant: "t".into() }.into(), Code::ResourceExhausted),
            (Refusal::UnknownQueue { queue: "q".into() }.into(), Code::NotFound),
            (Problem::new(problem::Code::Internal, ""), Code::Internal),
            (Problem::new(problem::Code::DedupConflict, ""), Code::AlreadyExists),
            (Problem::new(problem::Code::TaskPurged, ""), Code::NotFound),
        ];
        for (problem, code) in table {
            let name = problem.code.name();
            let status = Status::from(problem);
            assert_eq!(status.code(), code, "{name}");
            let details = status.get_error_details();
            assert_eq!(details.error_info().unwrap().reason, name);
            let comes_back = matches!(code, Code::ResourceExhausted | Code::Unavailable);
            assert_eq!(details.retry_info().is_some(), comes_back, "{name}");
        }
    }

    #[test]
    fn a_limit_is_named_and_says_when_to_come_back() {
        let over_limit = Problem::over_limit(crate::convert::Limit::Requests, "x");
        let problem = Problem { retry_after_ms: Some(2_100), ..over_limit };
        let details = Status::from(problem).get_error_details();
        assert_eq!(details.error_info().unwrap().metadata["limit"], "requests_per_second");
        assert_eq!(details.retry_info().unwrap().retry_delay, Some(Duration::from_millis(2_100)));
    }

    #[test]
    fn a_rejected_report_says_so_in_its_details() {
        let status = Status::from(Problem::from(Rejection::ConflictingReport));
        assert_eq!(status.get_error_details().error_info().unwrap().metadata["verdict"], "REJECTED");
    }
}
