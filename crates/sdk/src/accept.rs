//! The answer of a push target to a dispatch.

use std::time::Duration;

/// How long a coordinator should wait before it sends more to a full target.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The answer to one dispatch, for the program's HTTP server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the coordinator needs this answer"]
pub enum Accept {
    /// The task runs in the background and is reported to the coordinator.
    Accepted,
    /// The task was not begun.
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

    /// No retry of this envelope will be accepted.
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
        let why = "the target runs as many tasks as it may".to_owned();
        Accept::Refused { status: 429, retry_after: Some(RETRY_AFTER), why }
    }

    pub(crate) fn stopping() -> Accept {
        let why = "the worker is stopping".to_owned();
        Accept::Refused { status: 503, retry_after: Some(RETRY_AFTER), why }
    }
}
