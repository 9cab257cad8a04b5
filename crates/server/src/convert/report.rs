//! Converts reports and their verdicts for every contract. The same content has the same digest, so a repeat through
//! another contract is still a repeat.

use authority::command::{ReportCompletion, ReportFailure, Verdict};
use authority::{LeaseRef, Outcome, TaskError};
use wire::Json;

use super::{content, ids};
use crate::convert::problem::Problem;
use crate::convert::submission::inline;

/// The attempt is done; a missing result is null. `field` is the result's name in the contract.
pub(crate) fn completion(
    lease: LeaseRef,
    field: &str,
    result: Option<Json>,
) -> Result<ReportCompletion, Problem> {
    let result = inline(field, &result.unwrap_or_else(Json::null))?;
    let digest = content::completion(&result).map_err(|fault| Problem::field(field, fault.what))?;
    Ok(ReportCompletion { lease, digest, result })
}

/// The attempt failed.
pub(crate) fn failure(
    lease: LeaseRef,
    error: TaskError,
    retryable: Option<bool>,
) -> Result<ReportFailure, Problem> {
    let digest = content::failure(&error);
    Ok(ReportFailure { lease, digest, error, retryable, draw: ids::draw()? })
}

/// What a committed report led to; every other verdict is a problem that carries it.
pub(crate) fn committed(verdict: Verdict) -> Result<Outcome, Problem> {
    match verdict {
        Verdict::Committed(Outcome::Discarded) | Verdict::Cancelled => Err(Problem::cancelled()),
        Verdict::Rejected(why) => Err(why.into()),
        Verdict::Committed(outcome) => Ok(outcome),
    }
}
