//! A problem in the words of this contract: `ok` is false, and `ack` says whether the stream message is done with all
//! the same. It is when the report came too late: the job has a newer message by then, or none because it is final.

use axum::response::{IntoResponse, Response};
use wire::{ClaimProblem, Verdict};

use crate::convert::Problem;
use crate::convert::problem::refusal;

/// With `IS_REPORT`, the answer to a report, which has a verdict.
pub(crate) struct Refusal<const IS_REPORT: bool = false>(Problem);

impl<E, const IS_REPORT: bool> From<E> for Refusal<IS_REPORT>
where
    Problem: From<E>,
{
    fn from(why: E) -> Refusal<IS_REPORT> {
        let problem = Problem::from(why);
        Refusal(if IS_REPORT { problem.on_report() } else { problem })
    }
}

impl<const IS_REPORT: bool> IntoResponse for Refusal<IS_REPORT> {
    fn into_response(self) -> Response {
        let Refusal(problem) = self;
        let status = problem.code.status();
        let ack = problem.verdict == Some(Verdict::Cancelled);
        refusal(status, wire::PROBLEM_JSON, &ClaimProblem { ok: false, ack, problem: problem.into_wire() })
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use http_body_util::BodyExt;
    use serde_json::{Value, json};

    use coordinator::Unavailable;

    use super::*;
    use crate::convert::problem::Code;

    async fn answer(refusal: Refusal<true>) -> (StatusCode, Value) {
        let response = refusal.into_response();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn s2_13_only_a_report_that_came_too_late_is_acknowledged_without_being_accepted() {
        let table = [
            (Problem::cancelled(), 409, true),
            (Problem::from(authority::Rejection::ConflictingReport), 409, false),
            (authority::Rejection::NeverGranted.into(), 403, false),
            (authority::Rejection::UnknownTask.into(), 404, false),
            (Problem::new(Code::MalformedJson, "x"), 400, false),
            (Unavailable::Stopped.into(), 503, false),
            (Unavailable::OutcomeUnknown.into(), 503, false),
            (Unavailable::Overloaded.into(), 429, false),
        ];
        for (problem, status, ack) in table {
            let code = problem.code;
            let (answered_status, body) = answer(Refusal::from(problem)).await;
            assert_eq!((answered_status.as_u16(), &body["ok"]), (status, &json!(false)), "{body}");
            assert_eq!((&body["ack"], &body["code"]), (&json!(ack), &json!(code.name())), "{body}");
        }
    }
}
