//! Time limits: how long a request may take to arrive, and a response to be read.

use std::time::Duration;

/// Longest pause within a request.
const MAX_PAUSE: Duration = Duration::from_secs(10);
/// Longest time for a whole body.
const MAX_BODY: Duration = Duration::from_secs(60);
/// Longest gRPC call, from its head to its answer: the longest wait for a task, and time to receive the request.
const MAX_CALL: Duration = Duration::from_secs(90);
/// Longest time that a client may take nothing of an answer that comes in pieces.
const MAX_STALL: Duration = Duration::from_secs(30);
/// Longest watch of the health of a service, which needs no credential. Clients begin another one when it ends.
const MAX_HEALTH_WATCH: Duration = Duration::from_secs(10 * 60);
/// What a blob's sender must send at least while it is waited for `max_body`: about a kilobyte a second.
const MIN_PACE_BYTES: u64 = 64 * 1_024;

/// The bounds that a test or an operator may want to be others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receiving {
    pub max_pause: Duration,
    /// A blob may take longer while it comes fast enough.
    pub max_body: Duration,
    pub max_call: Duration,
    pub max_stall: Duration,
    pub max_health_watch: Duration,
}

impl Default for Receiving {
    fn default() -> Receiving {
        Receiving {
            max_pause: MAX_PAUSE,
            max_body: MAX_BODY,
            max_call: MAX_CALL,
            max_stall: MAX_STALL,
            max_health_watch: MAX_HEALTH_WATCH,
        }
    }
}

/// The least throughput of the sender of a blob (A5). Only the time spent waiting for the sender counts.
pub(crate) struct MinThroughput {
    receiving: Receiving,
    waited: Duration,
    bytes: u64,
}

impl MinThroughput {
    pub(crate) fn new(receiving: Receiving) -> MinThroughput {
        MinThroughput { receiving, waited: Duration::ZERO, bytes: 0 }
    }

    /// How long the next piece may take to arrive.
    pub(crate) fn next_timeout(&self) -> Duration {
        self.receiving.max_pause.min(self.receiving.max_body.saturating_sub(self.waited))
    }

    /// Records a piece that arrived after some time.
    pub(crate) fn received(&mut self, bytes: usize, waited: Duration) {
        self.bytes += bytes as u64;
        self.waited += waited;
        if self.bytes >= MIN_PACE_BYTES {
            (self.bytes, self.waited) = (0, Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a5_a_sender_that_trickles_runs_out_of_patience_and_one_at_a_pace_does_not() {
        let mut throughput = MinThroughput::new(Receiving::default());
        for _ in 0..59 {
            throughput.received(1, Duration::from_secs(1));
        }
        assert_eq!(throughput.next_timeout(), Duration::from_secs(1));
        throughput.received(1, Duration::from_secs(1));
        assert_eq!(throughput.next_timeout(), Duration::ZERO);
        let mut throughput = MinThroughput::new(Receiving::default());
        for _ in 0..10_000 {
            throughput.received(2_048, Duration::from_secs(1));
            assert!(throughput.next_timeout() > Duration::ZERO);
        }
    }
}
