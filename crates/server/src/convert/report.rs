//! Converts reports and their verdicts for every contract. The same content has the same digest, so a repeat through
//! another contract is still a repeat.

use authority::command::{ReportCompletion, ReportFailure, Verdict};
use authority::{LeaseRef, Outcome, TaskError};
use coordinator::Progress;
use wire::Json;

use super::names::{optional_within, progress_message};
use super::report_details::Details;
use super::{content, ids};
use crate::app::App;
use crate::convert::Problem;
use crate::convert::submission::inline;

/// The attempt is done; a missing result is null. `field` is the result's name in the contract.
pub(crate) fn completion(
    lease: LeaseRef,
    field: &str,
    result: Option<Json>,
    details: Details<'_>,
) -> Result<ReportCompletion, Problem> {
    let result = inline(field, &result.unwrap_or_else(Json::null))?;
    let digest = content::completion(&result).map_err(|fault| Problem::field(field, fault.what))?;
    Ok(ReportCompletion { lease, digest, result, details: details.bounded() })
}

pub(crate) fn failure(
    lease: LeaseRef,
    error: TaskError,
    retryable: Option<bool>,
    details: Details<'_>,
) -> Result<ReportFailure, Problem> {
    let (digest, details) = (content::failure(&error), details.bounded());
    Ok(ReportFailure { lease, digest, error, details, retryable, draw: ids::draw()? })
}

/// The progress that a heartbeat reports, if any. `field` is the percentage's name in the contract.
pub(crate) fn progress(
    app: &App,
    field: &str,
    percent: Option<f64>,
    message: Option<&str>,
) -> Result<Option<Progress>, Problem> {
    let percent = optional_within(field, percent, 0.0..=100.0)?;
    let message = message.map(progress_message);
    let is_given = percent.is_some() || message.is_some();
    Ok(is_given.then(|| Progress { percent, message, at: app.handle.now() }))
}

/// What a committed report led to; every other verdict is a problem that carries it.
pub(crate) fn committed(verdict: Verdict) -> Result<Outcome, Problem> {
    match verdict {
        Verdict::Committed(Outcome::Discarded) | Verdict::Cancelled => Err(Problem::cancelled()),
        Verdict::Rejected(why) => Err(why.into()),
        Verdict::Committed(outcome) => Ok(outcome),
    }
}
