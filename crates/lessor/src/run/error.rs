//! Errors of a run, each in one line, and their exit codes.

use std::path::{Path, PathBuf};

use reapi_client::CasError;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::client;
use crate::client::show::text::clean;
use crate::exit;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Server(#[from] client::Error),

    #[error("the input {}: {why}", clean(&.path.display().to_string()))]
    Input { path: PathBuf, why: String },

    #[error("{}", clean(&.0.to_string()))]
    Content(#[from] CasError),

    /// The message is the server's.
    #[error("the command was not run to its end: {} ({code:?})", clean(.message))]
    NotRun { code: Code, message: String },

    /// The message is the server's, which also names the missing blobs.
    #[error("the command was not run to its end: {} (FailedPrecondition)", clean(.0))]
    MissingInputs(String),

    #[error("the command was ended because it ran for longer than it may{}", limit(*.timeout_ms))]
    TimedOut { timeout_ms: Option<u64> },

    #[error("somebody cancelled the command: {}", clean(.0))]
    Cancelled(String),

    #[error("the output {}: {why}", clean(.path))]
    Output { path: String, why: String },

    #[error("cannot write the command's output: {0}")]
    Streams(std::io::Error),
}

impl Error {
    pub(crate) fn input(path: &Path, why: impl std::fmt::Display) -> Error {
        Error::Input { path: path.to_owned(), why: why.to_string() }
    }

    pub(crate) fn output(path: impl Into<String>, why: impl std::fmt::Display) -> Error {
        Error::Output { path: path.into(), why: why.to_string() }
    }

    /// A response that violates the protocol.
    pub(crate) fn nonsense(what: impl std::fmt::Display) -> Error {
        Error::NotRun { code: Code::DataLoss, message: format!("the server's answer makes no sense: {what}") }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Error::TimedOut { .. } => exit::COMMAND_TIMED_OUT,
            _ => exit::COMMAND_NOT_RUN,
        }
    }

    /// Whether inputs were evicted, so that another upload may help.
    pub(crate) fn is_missing_inputs(&self) -> bool {
        matches!(self, Error::MissingInputs(_))
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        let message = status.message().to_owned();
        if names_missing_blobs(&status) {
            Error::MissingInputs(message)
        } else {
            Error::NotRun { code: status.code(), message }
        }
    }
}

/// Whether the status is about missing blobs only. Other preconditions have the same code, and no upload satisfies them.
/// The list may be empty, if the blobs were uploaded meanwhile.
fn names_missing_blobs(status: &Status) -> bool {
    let details = status.get_error_details();
    let failure = details.precondition_failure();
    status.code() == Code::FailedPrecondition
        && failure.is_some_and(|failure| failure.violations.iter().all(|one| one.r#type == "MISSING"))
}

fn limit(timeout_ms: Option<u64>) -> String {
    timeout_ms.map(|ms| format!(", {}", client::show::time::exact(ms))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use tonic_types::{ErrorDetails, PreconditionViolation};

    use super::*;

    #[test]
    fn only_a_status_that_names_missing_blobs_is_about_missing_inputs() {
        let with = |code, violations: Vec<_>| {
            Status::with_error_details(code, "no", ErrorDetails::with_precondition_failure(violations))
        };
        let status = |code, kind: &str| with(code, vec![PreconditionViolation::new(kind, "blobs/x/1", "")]);
        for (status, is_missing) in [
            (status(Code::FailedPrecondition, "MISSING"), true),
            (status(Code::FailedPrecondition, "TERMS"), false),
            (status(Code::Internal, "MISSING"), false),
            (with(Code::FailedPrecondition, Vec::new()), true),
            (Status::failed_precondition("no worker offers it"), false),
        ] {
            assert_eq!(Error::from(status.clone()).is_missing_inputs(), is_missing, "{status:?}");
        }
    }
}
