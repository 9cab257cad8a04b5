//! Errors of calls to the coordinator.

use std::sync::Arc;

use wire::Problem;

#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The coordinator refused the request; the problem's `code` is stable, for programs.
    #[error("{} ({}, HTTP {})", if .0.detail.is_empty() { &.0.title } else { &.0.detail }, .0.code, .0.status)]
    Refused(Box<Problem>),

    /// No answer, even after retries. The request may or may not have been carried out.
    #[error("{url}: {why}")]
    NoAnswer { url: String, why: String },

    /// A server other than Lessor answered.
    #[error("{url} answered {status}, but not as Lessor does ({why}); is the URL right?")]
    Foreign { url: String, status: u16, why: String },

    /// A value cannot be encoded as JSON.
    #[error("it cannot be encoded as JSON: {0}")]
    NotJson(#[source] Arc<serde_json::Error>),

    /// The worker or the client is misconfigured.
    #[error("{0}")]
    Setup(String),
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Error {
        Error::NotJson(Arc::new(error))
    }
}

impl Error {
    /// The coordinator's problem, if it refused the request.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Error::Refused(problem) => Some(problem),
            _ => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.problem().is_some_and(|problem| problem.status == 404)
    }

    /// Whether the task has ended and is no longer kept.
    pub fn is_purged(&self) -> bool {
        self.problem().is_some_and(|problem| problem.code == "task_purged")
    }

    pub fn is_conflict(&self) -> bool {
        self.problem().is_some_and(|problem| problem.status == 409)
    }

    pub fn is_full(&self) -> bool {
        self.problem().is_some_and(|problem| problem.status == 429)
    }
}
