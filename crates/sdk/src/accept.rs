//! What a push target answers to a dispatch.

use std::time::Duration;

/// How long a coordinator should wait before it offers more to a target that is full.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The answer to one dispatch, for whatever HTTP server the program has.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the coordinator has to be told"]
pub enum Accept {
    /// The work goes on in the background, and reports for itself.
    Accepted,
    /// Nothing was begun.
    Refused {
        status: u16,
        /// For the `retry-after` header.
        retry_after: Option<Duration>,
        /// For people.
        why: String,
    },
}

impl Accept {
    /// The HTTP status of the answer.
    pub fn status(&self) -> u16 {
        match self {
            Accept::Accepted => 202,
            Accept::Refused { status, .. } => *status,
        }
    }

    pub fn is_accepted(&self) -> bool {
        *self == Accept::Accepted
    }

    /// This envelope will never be acceptable.
    pub(crate) fn bad(why: impl Into<String>) -> Accept {
        Accept::Refused { status: 400, retry_after: None, why: why.into() }
    }

    pub(crate) fn too_large(limit_bytes: usize) -> Accept {
        let why = format!("an envelope has at most {limit_bytes} bytes");
        Accept::Refused { status: 413, retry_after: None, why }
    }

    pub(crate) fn unsigned(why: &str) -> Accept {
        Accept::Refused { status: 401, retry_after: None, why: why.to_owned() }
    }

    pub(crate) fn full() -> Accept {
        let why = "as many tasks as may run do".to_owned();
        Accept::Refused { status: 429, retry_after: Some(RETRY_AFTER), why }
    }

    pub(crate) fn stopping() -> Accept {
        let why = "the worker is stopping".to_owned();
        Accept::Refused { status: 503, retry_after: Some(RETRY_AFTER), why }
    }
}
