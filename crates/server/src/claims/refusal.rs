//! A problem in the words of this contract: `ok` is false, and `ack` says whether the stream message is done with all
//! the same. It is when the report came too late: the job has a newer message by then, or none because it is final.

use axum::response::{IntoResponse, Response};
use coordinator::Unavailable;
use wire::{ClaimProblem, Verdict};

use crate::convert::problem::{Problem, refusal};

pub(crate) struct Refusal(Problem);

impl From<Problem> for Refusal {
    fn from(why: Problem) -> Refusal {
        Refusal(why)
    }
}

impl From<Unavailable> for Refusal {
    fn from(why: Unavailable) -> Refusal {
        Refusal(why.into())
    }
}

impl Refusal {
    /// The same as the answer to a report, which has a verdict.
    pub(crate) fn on_report(self) -> Refusal {
        Refusal(self.0.on_report())
    }
}

impl IntoResponse for Refusal {
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

    use super::*;
    use crate::convert::problem::Code;

    async fn told(refusal: Refusal) -> (StatusCode, Value) {
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
            let (told_status, body) = told(Refusal::from(problem).on_report()).await;
            assert_eq!((told_status.as_u16(), &body["ok"]), (status, &json!(false)), "{body}");
            assert_eq!((&body["ack"], &body["code"]), (&json!(ack), &json!(code.name())), "{body}");
        }
    }
}
