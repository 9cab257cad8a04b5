//! How long a lease surely lives, by the worker's own clock.
//!
//! A worker must stop before its lease ends, not after, and it cannot read the coordinator's clock. So every span is
//! counted from a moment before the coordinator can have begun to count: when the request was sent, not when its
//! answer came. The wall clock plays no part.

use std::time::Duration;

use jiff::Timestamp;
use wire::Lease;

use crate::clock;

/// A lease is granted for a tenth more than its length, because the coordinator records no extension that is younger
/// than that. After an answered heartbeat only the length itself is sure.
const GRANTED_TENTHS: u32 = 11;
const SURE_TENTHS: u32 = 10;

#[derive(Clone, Debug)]
pub struct LeaseClock {
    length: Duration,
    expires_at: Timestamp,
    /// Where the attempt's time limit ends the lease.
    limited_to: Option<Timestamp>,
    heard_at: Duration,
    valid_until: Duration,
}

impl LeaseClock {
    /// `asked_at` is when the worker first asked for what turned out to be this lease.
    pub fn new(lease: &Lease, asked_at: Duration, heard_at: Duration) -> LeaseClock {
        let length = span(lease.granted_at, lease.expires_at);
        let limit = |ms: u64| lease.granted_at.checked_add(Duration::from_millis(ms)).ok();
        LeaseClock {
            length,
            expires_at: lease.expires_at,
            limited_to: lease.timeout_ms.and_then(limit),
            heard_at,
            valid_until: asked_at + length,
        }
    }

    pub fn valid_until(&self) -> Duration {
        self.valid_until
    }

    pub fn is_over(&self) -> bool {
        clock::now() >= self.valid_until
    }

    /// Whether so much of the lease may be gone on arrival that a heartbeat has to show that it lives.
    pub fn needs_confirming(&self) -> bool {
        clock::until(self.valid_until) < self.length / 2
    }

    /// The lease is over by then unless a heartbeat was answered, however late it was granted.
    pub fn latest_end(&self) -> Duration {
        self.heard_at + self.length
    }

    /// A heartbeat that was sent then found the lease alive until `expires_at`.
    pub fn extended(&mut self, sent_at: Duration, expires_at: Timestamp) {
        if self.limited_to.is_none_or(|limit| expires_at < limit) {
            let sure = self.length * SURE_TENTHS / GRANTED_TENTHS;
            self.valid_until = self.valid_until.max(sent_at + sure);
        } else {
            // The attempt's time limit ends the lease, so only what was gained is added to what was sure before.
            let gained = span(self.expires_at, expires_at);
            self.valid_until = (self.valid_until + gained).min(sent_at + self.length);
            if self.is_over() {
                // How much of the time is gone cannot be known. The lease lives, so the most that can be left is
                // what was left when it arrived.
                self.valid_until = self.latest_end();
            }
        }
        self.expires_at = expires_at;
    }
}

fn span(from: Timestamp, to: Timestamp) -> Duration {
    Duration::try_from(to.duration_since(from)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use wire::Json;

    use super::*;

    const GRANTED: Timestamp = Timestamp::UNIX_EPOCH;

    fn after(seconds: u64) -> Timestamp {
        GRANTED + Duration::from_secs(seconds)
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn clock(length_s: u64, timeout_ms: Option<u64>, asked_at: Duration) -> LeaseClock {
        let lease = Lease {
            lease_id: "l".into(),
            task_id: "t".into(),
            attempt: 1,
            queue: "q".into(),
            payload: Json::null(),
            granted_at: GRANTED,
            expires_at: after(length_s),
            heartbeat_interval_ms: 20_000,
            fencing_token: 1,
            deadline: None,
            timeout_ms,
            run_id: None,
            asset_id: None,
            task_key: None,
            resources: None,
        };
        LeaseClock::new(&lease, asked_at, clock::now())
    }

    #[test]
    fn a_lease_is_counted_from_when_it_was_asked_for() {
        let now = clock::now();
        let fresh = clock(66, None, now - seconds(10));
        assert_eq!(fresh.valid_until(), now + seconds(56));
        assert!(!fresh.needs_confirming() && !fresh.is_over());
        assert!(clock(66, None, now - seconds(40)).needs_confirming());
        assert!(clock(66, None, now - seconds(70)).is_over());
    }

    #[test]
    fn a_heartbeat_gives_the_length_without_its_tenth_from_when_it_was_sent() {
        let now = clock::now();
        let mut clock = clock(66, None, now);
        clock.extended(now + seconds(1), after(66));
        assert_eq!(clock.valid_until(), now + seconds(66));
        clock.extended(now + seconds(20), after(86));
        assert_eq!(clock.valid_until(), now + seconds(80));
        // The coordinator's wall clock may step between two of its lives; the worker's own span does not follow it.
        clock.extended(now + seconds(40), after(3_600));
        assert_eq!(clock.valid_until(), now + seconds(100));
    }

    #[test]
    fn no_heartbeat_passes_the_attempts_time_limit() {
        let now = clock::now();
        let mut clock = clock(66, Some(70_000), now);
        clock.extended(now + seconds(20), after(70));
        clock.extended(now + seconds(60), after(70));
        assert_eq!(clock.valid_until(), now + seconds(70));
    }

    #[test]
    fn a_limited_lease_that_took_long_to_arrive_lives_at_most_as_long_as_it_could_then() {
        let mut clock = clock(5, Some(5_000), clock::now() - seconds(100));
        assert!(clock.is_over());
        clock.extended(clock::now(), after(5));
        assert_eq!(clock.valid_until(), clock.latest_end());
    }
}
