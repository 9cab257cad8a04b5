//! How long a request may take to arrive, whatever it is for.

use std::time::Duration;

/// Longest pause within a request.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Longest time for a whole body.
const MAX_BODY: Duration = Duration::from_secs(60);
/// Longest time of a gRPC call, from its head to its answer: the longest wait for a task, and room to receive the
/// request.
const MAX_CALL: Duration = Duration::from_secs(90);

/// The bounds that a test or an operator may want to be others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiving {
    pub max_pause: Duration,
    pub max_body: Duration,
    pub max_call: Duration,
}

impl Default for Receiving {
    fn default() -> Receiving {
        Receiving { max_pause: MAX_PAUSE, max_body: MAX_BODY, max_call: MAX_CALL }
    }
}
