//! Calls about one lease, which the path names, and the answer to a report.

use authority::command::Verdict;
use authority::{LeaseRef, Outcome, TaskState};
use wire::ReportAnswer;

use crate::convert::lease_id::reference;
use crate::convert::task_json::state_to_wire;
use crate::convert::{Problem, ScopedPath, report, to_timestamp};
use crate::edge::auth::Caller;
use crate::edge::{Out, failures};

impl ScopedPath {
    /// The lease, if it is this worker's and, where the worker says, this task's, in a queue of the caller's.
    pub(super) async fn lease(
        &self,
        caller: &Caller,
        worker_id: &str,
        task_id: Option<&str>,
    ) -> Result<LeaseRef, Problem> {
        let lease = reference(&self.app, &self.scope, &self.id, worker_id, task_id)?;
        caller.check_held(&self.app.handle, &lease).await?;
        Ok(lease)
    }
}

failures!(ReportFails: wire::Problem {
    400 "REJECTED: malformed", 403 "REJECTED: not this worker's lease", 404 "REJECTED: unknown task", 503 ""
});

/// COMMITTED is 200, CANCELLED is 409, REJECTED says what is wrong.
pub(super) fn answer(verdict: Verdict) -> Result<Out<ReportAnswer>, Problem> {
    let outcome = report::committed(verdict)?;
    let retry_at = match outcome {
        Outcome::RetryAt(at) => Some(to_timestamp(at)),
        _ => None,
    };
    let became = state_to_wire(outcome.state().unwrap_or(TaskState::Completed));
    let answer = ReportAnswer { verdict: wire::Verdict::Committed, state: became, retry_at };
    Ok(Out::ok(answer))
}

#[cfg(test)]
mod tests {
    use authority::{DeadReason, Rejection, Time};
    use axum::http::StatusCode;

    use super::*;

    #[test]
    fn s0_5_every_report_gets_exactly_one_of_three_answers() {
        let committed = [
            (Outcome::Completed, wire::TaskState::Completed),
            (Outcome::Failed, wire::TaskState::Failed),
            (Outcome::RetryAt(Time(5)), wire::TaskState::Waiting),
            (Outcome::Dead(DeadReason::Cancelled), wire::TaskState::Dead),
        ];
        for (outcome, became) in committed {
            let Out(status, body) = answer(Verdict::Committed(outcome)).ok().unwrap();
            assert_eq!(
                (status, body.verdict, body.state),
                (StatusCode::OK, wire::Verdict::Committed, became)
            );
            assert_eq!(body.retry_at.is_some(), matches!(outcome, Outcome::RetryAt(_)));
        }
        let refused = [
            (Verdict::Cancelled, 409, wire::Verdict::Cancelled),
            (Verdict::Rejected(Rejection::UnknownTask), 404, wire::Verdict::Rejected),
            (Verdict::Rejected(Rejection::NeverGranted), 403, wire::Verdict::Rejected),
            (Verdict::Rejected(Rejection::WrongWorker), 403, wire::Verdict::Rejected),
            (Verdict::Rejected(Rejection::ConflictingReport), 409, wire::Verdict::Rejected),
        ];
        for (verdict, status, told) in refused {
            let problem = answer(verdict).err().unwrap();
            assert_eq!((problem.code.status().as_u16(), problem.verdict), (status, Some(told)));
        }
    }
}
