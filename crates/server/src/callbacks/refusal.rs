//! The refusals of callbacks, each with the status and the body that the contract defines.

use authority::{DeadReason, Phase, Rejection, Task};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use coordinator::Unavailable;
use wire::{CallbackProblem, CallbackState};

use crate::convert::Problem;
use crate::convert::problem::{refusal, shortened};

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: StatusCode,
    body: Box<CallbackProblem>,
}

impl Refusal {
    fn new(status: StatusCode, error: &str, message: impl AsRef<str>) -> Refusal {
        let message = shortened(message.as_ref()).to_owned();
        let body = CallbackProblem { error: error.to_owned(), message, ..CallbackProblem::default() };
        Refusal { status, body: Box::new(body) }
    }

    /// The same words for everything that may be wrong with a token: whoever made it up learns nothing.
    pub(crate) fn invalid_token() -> Refusal {
        Refusal::new(StatusCode::UNAUTHORIZED, "invalid_token", "The task token is not valid")
    }

    pub(crate) fn task_not_found() -> Refusal {
        let message = "There is no such task; it may have been purged";
        Refusal::new(StatusCode::NOT_FOUND, "task_not_found", message)
    }

    pub(crate) fn attempt_mismatch(expected: u32, received: u32) -> Refusal {
        let message = format!("The task is at attempt {expected}; attempt {received} is over or not its own");
        let mut refusal = Refusal::new(StatusCode::CONFLICT, "attempt_mismatch", message);
        refusal.body.expected_attempt = Some(expected);
        refusal.body.received_attempt = Some(received);
        refusal
    }

    pub(crate) fn already_terminal(state: CallbackState, message: &str) -> Refusal {
        let mut refusal = Refusal::new(StatusCode::CONFLICT, "task_already_terminal", message);
        refusal.body.state = Some(state);
        refusal
    }

    pub(crate) fn already_started() -> Refusal {
        let message = "Another worker began this attempt";
        Refusal::new(StatusCode::CONFLICT, "attempt_already_started", message)
    }

    pub(crate) fn already_completed() -> Refusal {
        let message = "This attempt already reported something else, and the first report stands";
        Refusal::new(StatusCode::CONFLICT, "attempt_already_completed", message)
    }

    pub(crate) fn expired() -> Refusal {
        let message = "The attempt ended or exceeded its heartbeat timeout";
        Refusal::new(StatusCode::GONE, "task_expired", message)
    }
}

/// What a final task is called in this contract; nothing for one that is not final.
pub(super) fn final_state(task: &Task) -> Option<CallbackState> {
    match task.phase {
        Phase::Completed { .. } => Some(CallbackState::Succeeded),
        Phase::Failed { .. } => Some(CallbackState::Failed),
        Phase::Dead { reason, .. } => Some(dead(reason)),
        Phase::Waiting { .. } | Phase::Leased(_) => None,
    }
}

/// A task that was cancelled is CANCELLED; every other end by the coordinator is a failure.
pub(super) fn dead(reason: DeadReason) -> CallbackState {
    match reason {
        DeadReason::Cancelled => CallbackState::Cancelled,
        DeadReason::CancelTimeout
        | DeadReason::HeartbeatTimeout
        | DeadReason::Deadline
        | DeadReason::Killed => CallbackState::Failed,
    }
}

impl From<Problem> for Refusal {
    fn from(why: Problem) -> Refusal {
        let status = why.code.status();
        let error = match status {
            StatusCode::BAD_REQUEST => "invalid_argument",
            _ => why.code.name(),
        };
        Refusal::new(status, error, why.detail)
    }
}

impl From<Unavailable> for Refusal {
    fn from(why: Unavailable) -> Refusal {
        Problem::from(why).into()
    }
}

impl From<Rejection> for Refusal {
    fn from(why: Rejection) -> Refusal {
        match why {
            Rejection::UnknownTask => Refusal::task_not_found(),
            Rejection::NeverGranted | Rejection::WrongWorker => Refusal::invalid_token(),
            Rejection::ConflictingReport => Refusal::already_completed(),
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = refusal(self.status, "application/json", &self.body);
        if self.status == StatusCode::UNAUTHORIZED {
            let bearer = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, bearer);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::problem::Code;

    #[test]
    fn every_refusal_has_its_status_and_its_name() {
        let table: [(Refusal, u16, &str); 14] = [
            (Refusal::invalid_token(), 401, "invalid_token"),
            (Rejection::NeverGranted.into(), 401, "invalid_token"),
            (Rejection::WrongWorker.into(), 401, "invalid_token"),
            (Rejection::UnknownTask.into(), 404, "task_not_found"),
            (Rejection::ConflictingReport.into(), 409, "attempt_already_completed"),
            (Refusal::attempt_mismatch(2, 1), 409, "attempt_mismatch"),
            (Refusal::already_started(), 409, "attempt_already_started"),
            (Refusal::already_terminal(CallbackState::Failed, "x"), 409, "task_already_terminal"),
            (Refusal::expired(), 410, "task_expired"),
            (Problem::new(Code::MalformedJson, "x").into(), 400, "invalid_argument"),
            (Problem::new(Code::InvalidField, "x").into(), 400, "invalid_argument"),
            (Problem::new(Code::PayloadTooLarge, "x").into(), 413, "payload_too_large"),
            (Unavailable::Stopped.into(), 503, "not_serving"),
            (Unavailable::Overloaded.into(), 429, "overloaded"),
        ];
        for (refusal, status, error) in table {
            assert_eq!((refusal.status.as_u16(), refusal.body.error.as_str()), (status, error));
            let response = refusal.into_response();
            let again = response.headers().contains_key(header::RETRY_AFTER);
            assert_eq!(again, matches!(status, 429 | 503), "{error}");
        }
    }
}
