//! Parses the problem codes of the contracts, which share their names.

use authority::Rejection;
use coordinator::Unavailable;
use serde_json::Value;

use super::worker_call::WorkerResponse;

/// Why nothing was decided, by the status of HTTP and the name of the problem.
pub(super) fn unavailable(status: u16, code: Option<&str>) -> Option<Unavailable> {
    match (status, code) {
        (429, _) => Some(Unavailable::Overloaded),
        (503, Some("no_space")) => Some(Unavailable::NoSpace),
        (503, Some("outcome_unknown")) => Some(Unavailable::OutcomeUnknown),
        (503, _) => Some(Unavailable::Stopped),
        _ => None,
    }
}

/// Whatever makes the edge refuse a lease id: to this worker, for this task, it was never granted.
pub(super) fn rejection(status: u16, code: Option<&str>) -> Option<Rejection> {
    match (status, code) {
        (409, Some("conflicting_report")) => Some(Rejection::ConflictingReport),
        (403, _) => Some(Rejection::NeverGranted),
        (404, _) => Some(Rejection::UnknownTask),
        _ => None,
    }
}

/// A problem in answer to a call about a lease.
pub(super) fn problem(status: u16, body: &Value) -> WorkerResponse {
    let code = body["code"].as_str();
    if let Some(why) = unavailable(status, code) {
        return WorkerResponse::Unavailable(why);
    }
    if body["verdict"] == "CANCELLED" {
        return WorkerResponse::Cancelled;
    }
    rejection(status, code).map_or(WorkerResponse::Nothing, WorkerResponse::Rejected)
}
