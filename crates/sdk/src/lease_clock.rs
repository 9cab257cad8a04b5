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
    /// What is sure from an answered heartbeat on.
    sure: Duration,
    /// As the coordinator's clock has it, where it is told.
    expires_at: Option<Timestamp>,
    /// Where the attempt's time limit ends the lease.
    limited_to: Option<Timestamp>,
    heard_at: Duration,
    valid_until: Duration,
    /// The lease is over by then, whatever is heard.
    ends_at: Option<Duration>,
}

impl LeaseClock {
    /// `asked_at` is when the worker first asked for what turned out to be this lease.
    pub fn new(lease: &Lease, asked_at: Duration, heard_at: Duration) -> LeaseClock {
        let length = span(lease.granted_at, lease.expires_at);
        let limit = |ms: u64| lease.granted_at.checked_add(Duration::from_millis(ms)).ok();
        LeaseClock {
            length,
            sure: length * SURE_TENTHS / GRANTED_TENTHS,
            expires_at: Some(lease.expires_at),
            limited_to: lease.timeout_ms.and_then(limit),
            heard_at,
            valid_until: asked_at + length,
            ends_at: None,
        }
    }

    /// Of a task that was pushed and has to begin within `begin_within`. From then on the lease lives for
    /// `heartbeat_timeout` after each answered call.
    pub fn pushed(heartbeat_timeout: Duration, begin_within: Duration, heard_at: Duration) -> LeaseClock {
        LeaseClock {
            length: heartbeat_timeout,
            sure: heartbeat_timeout,
            expires_at: None,
            limited_to: None,
            heard_at,
            valid_until: heard_at + begin_within,
            ends_at: None,
        }
    }

    /// The attempt began with a call that was first sent then.
    pub fn begun(&mut self, sent_at: Duration) {
        self.heard_at = clock::now();
        self.valid_until = sent_at + self.length;
    }

    /// The handler was told to stop, and has so long for it.
    pub fn stopping(&mut self, grace: Duration) {
        let end = *self.ends_at.get_or_insert(clock::now() + grace);
        self.valid_until = self.valid_until.min(end);
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

    /// A heartbeat that was sent then found the lease alive, until `expires_at` where that is told.
    pub fn extended(&mut self, sent_at: Duration, expires_at: Option<Timestamp>) {
        match (expires_at, self.limited_to) {
            (Some(at), Some(limit)) if at >= limit => {
                // The attempt's time limit ends the lease, so only what was gained is added to what was sure before.
                let gained = self.expires_at.map_or(Duration::ZERO, |before| span(before, at));
                self.valid_until = (self.valid_until + gained).min(sent_at + self.length);
                if self.is_over() {
                    // How much of the time is gone cannot be known. The lease lives, so the most that can be left is
                    // what was left when it arrived.
                    self.valid_until = self.latest_end();
                }
            }
            _ => self.valid_until = self.valid_until.max(sent_at + self.sure),
        }
        self.valid_until = self.ends_at.map_or(self.valid_until, |end| self.valid_until.min(end));
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
        clock.extended(now + seconds(1), Some(after(66)));
        assert_eq!(clock.valid_until(), now + seconds(66));
        clock.extended(now + seconds(20), Some(after(86)));
        assert_eq!(clock.valid_until(), now + seconds(80));
        // The coordinator's wall clock may step between two of its lives; the worker's own span does not follow it.
        clock.extended(now + seconds(40), Some(after(3_600)));
        assert_eq!(clock.valid_until(), now + seconds(100));
    }

    #[test]
    fn no_heartbeat_passes_the_attempts_time_limit() {
        let now = clock::now();
        let mut clock = clock(66, Some(70_000), now);
        clock.extended(now + seconds(20), Some(after(70)));
        clock.extended(now + seconds(60), Some(after(70)));
        assert_eq!(clock.valid_until(), now + seconds(70));
    }

    #[test]
    fn a_limited_lease_that_took_long_to_arrive_lives_at_most_as_long_as_it_could_then() {
        let mut clock = clock(5, Some(5_000), clock::now() - seconds(100));
        assert!(clock.is_over());
        clock.extended(clock::now(), Some(after(5)));
        assert_eq!(clock.valid_until(), clock.latest_end());
    }

    #[test]
    fn s1_21_a_pushed_task_that_was_told_to_stop_has_its_grace_and_no_more() {
        let now = clock::now();
        let mut clock = LeaseClock::pushed(seconds(90), seconds(60), now);
        assert_eq!(clock.valid_until(), now + seconds(60));
        clock.begun(now + seconds(1));
        assert_eq!(clock.valid_until(), now + seconds(91));
        clock.extended(now + seconds(30), None);
        assert_eq!(clock.valid_until(), now + seconds(120));
        clock.stopping(seconds(30));
        let end = clock.valid_until();
        assert!(end >= now + seconds(30) && end < now + seconds(60));
        // Neither a later heartbeat nor a repeat of the signal prolongs it.
        clock.extended(now + seconds(45), None);
        clock.stopping(seconds(3_600));
        assert_eq!(clock.valid_until(), end);
    }
}
