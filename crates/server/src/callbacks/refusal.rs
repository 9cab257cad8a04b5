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

    pub(super) fn is_invalid_token(&self) -> bool {
        self.status == StatusCode::UNAUTHORIZED
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
}

/// Defines refusals that are always the same, each named after its code.
macro_rules! refusals {
    ($($(#[$doc:meta])* $code:ident $status:ident $message:literal;)*) => {
        impl Refusal {$(
            $(#[$doc])*
            pub(crate) fn $code() -> Refusal {
                Refusal::new(StatusCode::$status, stringify!($code), $message)
            }
        )*}
    };
}

refusals! {
    /// The same message for every fault of a token, so that a forger learns nothing.
    invalid_token UNAUTHORIZED "The task token is not valid";
    task_not_found NOT_FOUND "There is no such task; it may have been purged";
    attempt_already_started CONFLICT "Another worker began this attempt";
    attempt_already_completed CONFLICT "This attempt already reported something else, and the first report stands";
    task_expired GONE "The attempt ended or exceeded its heartbeat timeout";
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
        let mut refusal = Refusal::new(status, error, why.detail);
        refusal.body.digests = (!why.digests.is_empty()).then_some(why.digests);
        refusal
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
            Rejection::ConflictingReport => Refusal::attempt_already_completed(),
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
            (Refusal::attempt_already_started(), 409, "attempt_already_started"),
            (Refusal::already_terminal(CallbackState::Failed, "x"), 409, "task_already_terminal"),
            (Refusal::task_expired(), 410, "task_expired"),
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
