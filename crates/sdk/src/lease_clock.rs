//! The time for which a lease is certainly valid, by the worker's own clock.
//!
//! A worker must stop before its lease ends, not after, and it cannot read the coordinator's clock. So every duration is
//! counted from a time before the coordinator can have begun to count: when the request was sent, not when its answer
//! came. The wall clock plays no part.

use std::time::Duration;

use jiff::Timestamp;
use wire::Lease;

use crate::clock;

/// The coordinator grants a lease for a tenth more than its length, because it does not record heartbeats that are more
/// recent than that. After an answered heartbeat only the length itself is certain.
const GRANTED_TENTHS: u32 = 11;
const CERTAIN_TENTHS: u32 = 10;

#[derive(Clone, Debug)]
pub struct LeaseClock {
    length: Duration,
    /// How long the lease is certainly valid after an answered heartbeat was sent.
    certain: Duration,
    /// By the coordinator's clock, if the protocol says so.
    expires_at: Option<Timestamp>,
    /// When the attempt's time limit ends the lease, by the coordinator's clock.
    limited_to: Option<Timestamp>,
    received_at: Duration,
    valid_until: Duration,
    /// Whether the time of the grant is unknown, so that `valid_until` may be too late until a heartbeat is answered.
    is_provisional: bool,
    /// The lease ends then, whatever heartbeats say.
    ends_at: Option<Duration>,
}

impl LeaseClock {
    /// The clock of a lease that was polled for. `asked_at` is when the worker first sent the poll.
    pub fn polled(lease: &Lease, asked_at: Duration, received_at: Duration) -> LeaseClock {
        let length = span(lease.granted_at, lease.expires_at);
        let limit = |ms: u64| lease.granted_at.checked_add(Duration::from_millis(ms)).ok();
        LeaseClock {
            certain: length * CERTAIN_TENTHS / GRANTED_TENTHS,
            expires_at: Some(lease.expires_at),
            limited_to: lease.timeout_ms.and_then(limit),
            ..LeaseClock::new(length, asked_at + length, received_at)
        }
    }

    /// The clock of a lease that came over a stream. The time of its grant is unknown until the first heartbeat, which
    /// the worker sends at once, is answered.
    pub fn streamed(length: Duration, timeout: Option<Duration>, received_at: Duration) -> LeaseClock {
        LeaseClock {
            certain: length * CERTAIN_TENTHS / GRANTED_TENTHS,
            is_provisional: true,
            ends_at: timeout.map(|timeout| received_at.saturating_add(timeout)),
            ..LeaseClock::new(length, received_at + length, received_at)
        }
    }

    /// The clock of a task that was pushed and must begin within `begin_within`. From then on the lease is valid for
    /// `heartbeat_timeout` after each answered call.
    pub fn pushed(heartbeat_timeout: Duration, begin_within: Duration, received_at: Duration) -> LeaseClock {
        LeaseClock::new(heartbeat_timeout, received_at + begin_within, received_at)
    }

    fn new(length: Duration, valid_until: Duration, received_at: Duration) -> LeaseClock {
        LeaseClock {
            length,
            certain: length,
            expires_at: None,
            limited_to: None,
            received_at,
            valid_until,
            is_provisional: false,
            ends_at: None,
        }
    }

    /// Begins the attempt of a pushed task, with a call that was first sent at `sent_at`.
    pub fn begin(&mut self, sent_at: Duration) {
        self.received_at = clock::now();
        self.valid_until = sent_at + self.length;
    }

    /// Limits the lease to the time that the handler has to stop.
    pub fn limit_to_grace(&mut self, grace: Duration) {
        let end = *self.ends_at.get_or_insert(clock::now() + grace);
        self.valid_until = self.valid_until.min(end);
    }

    pub fn valid_until(&self) -> Duration {
        self.valid_until
    }

    pub fn is_over(&self) -> bool {
        clock::now() >= self.valid_until
    }

    /// Whether more than half of the lease may be gone on arrival, so that a heartbeat must confirm it first.
    pub fn needs_confirmation(&self) -> bool {
        clock::until(self.valid_until) < self.length / 2
    }

    /// The lease is over by then without an answered heartbeat, however late it was granted.
    pub fn latest_end(&self) -> Duration {
        self.received_at + self.length
    }

    /// Extends the lease: a heartbeat that was sent at `sent_at` found it valid, until `expires_at` if the protocol
    /// says so.
    pub fn extend(&mut self, sent_at: Duration, expires_at: Option<Timestamp>) {
        match (expires_at, self.limited_to) {
            (Some(at), Some(limit)) if at >= limit => {
                // The attempt's time limit ends the lease, so only what was gained is added to what was certain before.
                let gained = self.expires_at.map_or(Duration::ZERO, |before| span(before, at));
                self.valid_until = (self.valid_until + gained).min(sent_at + self.length);
                if self.is_over() {
                    // How much of the time is gone cannot be known. The lease is valid, so at most as much can be left
                    // as was left when it arrived.
                    self.valid_until = self.latest_end();
                }
            }
            _ => {
                let before = if self.is_provisional { Duration::ZERO } else { self.valid_until };
                self.valid_until = before.max(sent_at + self.certain);
            }
        }
        self.valid_until = self.ends_at.map_or(self.valid_until, |end| self.valid_until.min(end));
        self.is_provisional = false;
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
        let lease = wire::in_task_context!(Lease {
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
            partial_progress: None,
            ..wire::TaskContext::default()
        });
        LeaseClock::polled(&lease, asked_at, clock::now())
    }

    #[test]
    fn a_lease_is_counted_from_when_it_was_asked_for() {
        let now = clock::now();
        let fresh = clock(66, None, now - seconds(10));
        assert_eq!(fresh.valid_until(), now + seconds(56));
        assert!(!fresh.needs_confirmation() && !fresh.is_over());
        assert!(clock(66, None, now - seconds(40)).needs_confirmation());
        assert!(clock(66, None, now - seconds(70)).is_over());
    }

    #[test]
    fn a_heartbeat_gives_the_length_without_its_tenth_from_when_it_was_sent() {
        let now = clock::now();
        let mut clock = clock(66, None, now);
        clock.extend(now + seconds(1), Some(after(66)));
        assert_eq!(clock.valid_until(), now + seconds(66));
        clock.extend(now + seconds(20), Some(after(86)));
        assert_eq!(clock.valid_until(), now + seconds(80));
        // The coordinator's wall clock may step between two of its lives; the worker's own span does not follow it.
        clock.extend(now + seconds(40), Some(after(3_600)));
        assert_eq!(clock.valid_until(), now + seconds(100));
    }

    #[test]
    fn no_heartbeat_passes_the_attempts_time_limit() {
        let now = clock::now();
        let mut clock = clock(66, Some(70_000), now);
        clock.extend(now + seconds(20), Some(after(70)));
        clock.extend(now + seconds(60), Some(after(70)));
        assert_eq!(clock.valid_until(), now + seconds(70));
    }

    #[test]
    fn a_limited_lease_that_took_long_to_arrive_lives_at_most_as_long_as_it_could_then() {
        let mut clock = clock(5, Some(5_000), clock::now() - seconds(100));
        assert!(clock.is_over());
        clock.extend(clock::now(), Some(after(5)));
        assert_eq!(clock.valid_until(), clock.latest_end());
    }

    #[test]
    fn s1_21_a_pushed_task_that_was_told_to_stop_has_its_grace_and_no_more() {
        let now = clock::now();
        let mut clock = LeaseClock::pushed(seconds(90), seconds(60), now);
        assert_eq!(clock.valid_until(), now + seconds(60));
        clock.begin(now + seconds(1));
        assert_eq!(clock.valid_until(), now + seconds(91));
        clock.extend(now + seconds(30), None);
        assert_eq!(clock.valid_until(), now + seconds(120));
        clock.limit_to_grace(seconds(30));
        let end = clock.valid_until();
        assert!(end >= now + seconds(30) && end < now + seconds(60));
        // Neither a later heartbeat nor a repeat of the signal prolongs it.
        clock.extend(now + seconds(45), None);
        clock.limit_to_grace(seconds(3_600));
        assert_eq!(clock.valid_until(), end);
    }

    #[test]
    fn a_streamed_lease_is_confirmed_by_its_first_heartbeat() {
        let mut clock = LeaseClock::streamed(seconds(66), None, seconds(100));
        assert_eq!(clock.valid_until(), seconds(166));
        clock.extend(seconds(101), None);
        assert_eq!(clock.valid_until(), seconds(161), "the grant may have been older than the stream told");
        clock.extend(seconds(110), None);
        assert_eq!(clock.valid_until(), seconds(170));
    }

    #[test]
    fn a_streamed_lease_ends_with_its_attempts_time_limit() {
        let mut clock = LeaseClock::streamed(seconds(66), Some(seconds(70)), seconds(100));
        clock.extend(seconds(160), None);
        assert_eq!(clock.valid_until(), seconds(170));
    }
}
