//! Why a command was not run to its end, each in one line, and the exit code that says so.

use std::path::{Path, PathBuf};

use tonic::{Code, Status};
use worker::cas::CasError;

use crate::client;
use crate::client::show::text::clean;
use crate::exit;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Server(#[from] client::Error),

    #[error("the input {}: {why}", clean(&.path.display().to_string()))]
    Input { path: PathBuf, why: String },

    #[error("{}", clean(&.0.to_string()))]
    Content(#[from] CasError),

    /// The server's own words.
    #[error("the command was not run to its end: {} ({code:?})", clean(.message))]
    NotRun { code: Code, message: String },

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
    pub fn input(path: &Path, why: impl std::fmt::Display) -> Error {
        Error::Input { path: path.to_owned(), why: why.to_string() }
    }

    pub fn output(path: impl Into<String>, why: impl std::fmt::Display) -> Error {
        Error::Output { path: path.into(), why: why.to_string() }
    }

    /// An answer that no server of the protocol gives.
    pub fn nonsense(what: impl std::fmt::Display) -> Error {
        Error::NotRun { code: Code::DataLoss, message: format!("the server's answer makes no sense: {what}") }
    }

    pub fn exit_code(&self) -> u8 {
        match self {
            Error::TimedOut { .. } => exit::COMMAND_TIMED_OUT,
            _ => exit::COMMAND_NOT_RUN,
        }
    }

    /// Whether inputs that were there are gone, so that bringing them again may help.
    pub fn may_lack_inputs(&self) -> bool {
        matches!(self, Error::NotRun { code: Code::FailedPrecondition, .. })
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        Error::NotRun { code: status.code(), message: status.message().to_owned() }
    }
}

fn limit(timeout_ms: Option<u64>) -> String {
    timeout_ms.map(|ms| format!(", {}", client::show::time::exact(ms))).unwrap_or_default()
}
