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
        Accept::refused(400, why)
    }

    pub(crate) fn unsigned(why: &str) -> Accept {
        Accept::refused(401, why)
    }

    pub(crate) fn refused(status: u16, why: impl Into<String>) -> Accept {
        let retry_after = matches!(status, 429 | 503).then_some(RETRY_AFTER);
        Accept::Refused { status, retry_after, why: why.into() }
    }
}
