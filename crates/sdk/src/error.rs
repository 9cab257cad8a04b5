//! Why a call to the coordinator did not bring what was asked for.

use std::sync::Arc;

use wire::Problem;

#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The coordinator said no; the problem's `code` is stable, for programs.
    #[error("{} ({}, HTTP {})", if .0.detail.is_empty() { &.0.title } else { &.0.detail }, .0.code, .0.status)]
    Refused(Box<Problem>),

    /// Nobody answered, also when asked again. Whether the request was done is not known.
    #[error("{url}: {why}")]
    NoAnswer { url: String, why: String },

    /// Something else than Lessor answers.
    #[error("{url} answered {status}, but not as Lessor does ({why}); is the URL right?")]
    Foreign { url: String, status: u16, why: String },

    /// What was to be sent is not JSON.
    #[error("it cannot be written as JSON: {0}")]
    NotJson(#[source] Arc<serde_json::Error>),

    /// The worker or the client is not set up in a way that could work.
    #[error("{0}")]
    Setup(String),
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Error {
        Error::NotJson(Arc::new(error))
    }
}

impl Error {
    /// What the coordinator said, if it said no.
    pub fn problem(&self) -> Option<&Problem> {
        match self {
            Error::Refused(problem) => Some(problem),
            _ => None,
        }
    }

    pub fn is_not_found(&self) -> bool {
        self.problem().is_some_and(|problem| problem.status == 404)
    }

    pub fn is_conflict(&self) -> bool {
        self.problem().is_some_and(|problem| problem.status == 409)
    }

    pub fn is_full(&self) -> bool {
        self.problem().is_some_and(|problem| problem.status == 429)
    }
}
