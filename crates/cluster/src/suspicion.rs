//! Whether the owner of a shard seems to be gone.

use std::time::{Duration, Instant};

use authority::Position;
use ledger::postgres::Observed;

/// An owner that neither appends nor says that it lives for this long is suspected, by default.
pub const TAKEOVER_AFTER: Duration = Duration::from_secs(3);
/// The owner's lock is free at two looks this far apart: a restart of the database ends the owner's session too, and the
/// owner takes the lock again within that time.
const UNLOCKED_FOR: Duration = Duration::from_millis(150);

/// So long after the loss of a stream the owner's lock is looked at more often.
const ALARM: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// The session that held the owner's lock has ended.
    Unlocked,
    /// The same, and the stream of its batches ended too.
    Disconnected,
    /// The owner has given the lock back.
    Released,
    /// The same, because most nodes cannot reach it.
    CutOff,
    Silent(Duration),
    /// A failover has undone the takeover of a later owner, which does not append it again, so that this owner leads once more. A
    /// standby holds what is missing.
    CameBack,
    /// There was never an owner.
    NoOwner,
}

impl std::fmt::Display for Suspicion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Suspicion::Unlocked => write!(f, "its session with the database ended"),
            Suspicion::Disconnected => write!(f, "its session with the database and its stream ended"),
            Suspicion::Released => write!(f, "it handed over"),
            Suspicion::CutOff => write!(f, "most nodes could not reach it"),
            Suspicion::Silent(for_long) => write!(f, "it was silent for {} ms", for_long.as_millis()),
            Suspicion::CameBack => write!(f, "it came back after a failover that has undone its successor"),
            Suspicion::NoOwner => write!(f, "there was no owner"),
        }
    }
}

/// Collects what is seen of the owner. The clock comes from outside.
pub(crate) struct Watch {
    takeover_after: Duration,
    /// What shows that the owner lives, and when it changed last.
    signs: Option<(Signs, Instant)>,
    unlocked_since: Option<Instant>,
    /// When the stream of the owner at this epoch was lost.
    stream_lost: Option<(u64, Instant)>,
    /// Since when the database ends here, and lacks what a later owner has made durable.
    undone_since: Option<(Position, Instant)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Signs {
    next: Position,
    beat: u64,
    epoch: u64,
}

impl Watch {
    pub(crate) fn new(takeover_after: Duration) -> Watch {
        Watch { takeover_after, signs: None, unlocked_since: None, stream_lost: None, undone_since: None }
    }

    /// The connection over which the owner at `epoch` sent its batches was lost.
    pub(crate) fn lost_stream(&mut self, epoch: u64, now: Instant) {
        self.stream_lost = Some((epoch, now));
    }

    pub(crate) fn forget_stream(&mut self) {
        self.stream_lost = None;
    }

    /// Whether the owner may have died a moment ago, so that its lock is about to be free.
    pub(crate) fn is_alarmed(&self, now: Instant) -> bool {
        self.stream_lost.is_some_and(|(_, lost_at)| now.duration_since(lost_at) < ALARM)
    }

    /// Whether the stream of the owner at `epoch` was lost at some time.
    pub(crate) fn has_lost_stream(&self, epoch: u64) -> bool {
        self.stream_lost.is_some_and(|(of, _)| of == epoch)
    }

    /// Whether the owner has shown no sign of life for long enough.
    pub(crate) fn is_silent(&self, now: Instant) -> bool {
        self.signs.is_some_and(|(_, since)| now.duration_since(since) >= self.takeover_after)
    }

    /// For how long the owner's lock has been free.
    pub(crate) fn unlocked_for(&self, now: Instant) -> Duration {
        self.unlocked_since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }

    /// Nothing could be seen for a while, so silence counts from now on.
    pub(crate) fn restart(&mut self) {
        (self.signs, self.unlocked_since, self.undone_since) = (None, None, None);
    }

    /// Whether the owner has come back for good: the database ends at `undone_at`, before what a later owner has made durable, and nobody
    /// appends that again for long enough.
    pub(crate) fn has_come_back(&mut self, undone_at: Option<Position>, now: Instant) -> Option<Suspicion> {
        let known = self.undone_since.filter(|(at, _)| Some(*at) == undone_at);
        self.undone_since = known.or(undone_at.map(|at| (at, now)));
        let (_, since) = self.undone_since?;
        (now.duration_since(since) >= self.takeover_after).then_some(Suspicion::CameBack)
    }

    /// Whether the owner seems to be gone. `was_notified` means that some node has said that something changed.
    pub(crate) fn judge(
        &mut self,
        observed: &Observed,
        was_notified: bool,
        now: Instant,
    ) -> Option<Suspicion> {
        let epoch = observed.owner.as_ref().map_or(0, |owner| owner.epoch);
        let signs = Signs { next: observed.next, beat: observed.beat, epoch };
        let since = match self.signs {
            Some((known, since)) if known == signs => since,
            _ => {
                self.signs = Some((signs, now));
                now
            }
        };
        if !observed.is_locked {
            let unlocked_since = *self.unlocked_since.get_or_insert(now);
            return match &observed.owner {
                None => Some(Suspicion::NoOwner),
                Some(_) if observed.is_cut_off => Some(Suspicion::CutOff),
                Some(_) if was_notified => Some(Suspicion::Released),
                // The owner of a restarted database goes on with its stream.
                Some(_) if self.is_alarmed(now) && self.stream_lost.is_some_and(|(of, _)| of == epoch) => {
                    Some(Suspicion::Disconnected)
                }
                Some(_) if now.duration_since(unlocked_since) >= UNLOCKED_FOR => Some(Suspicion::Unlocked),
                Some(_) => None,
            };
        }
        self.unlocked_since = None;
        let silent = now.duration_since(since);
        (silent >= self.takeover_after).then_some(Suspicion::Silent(silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::Link;
    use ledger::postgres::OwnerRow;

    fn observed(next: u64, is_locked: bool, beat: u64) -> Observed {
        let owner = OwnerRow { node: "a".to_owned(), address: String::new(), epoch: 1 };
        Observed {
            next: Position(next),
            link: Link([0; 16]),
            is_locked,
            owner: Some(owner),
            beat,
            beat_age_ms: 0,
            is_recorded: true,
            is_draining: false,
            is_cut_off: false,
        }
    }

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn an_owner_that_appends_or_beats_is_not_suspected() {
        let (mut watch, start) = (Watch::new(TAKEOVER_AFTER), Instant::now());
        for step in 0..10 {
            let seen = observed(1 + step / 2, true, step.div_ceil(2));
            assert_eq!(watch.judge(&seen, false, after(start, step * 2_900)), None);
        }
    }

    #[test]
    fn c2_a_silent_owner_is_suspected_although_its_session_lives() {
        let (mut watch, start) = (Watch::new(TAKEOVER_AFTER), Instant::now());
        assert_eq!(watch.judge(&observed(5, true, 1), false, start), None);
        assert_eq!(watch.judge(&observed(5, true, 1), false, after(start, 2_999)), None);
        let silent = watch.judge(&observed(5, true, 1), false, after(start, 3_000));
        assert_eq!(silent, Some(Suspicion::Silent(Duration::from_secs(3))));
    }

    #[test]
    fn c1_an_owner_whose_session_ended_is_suspected_at_the_second_look() {
        let (mut watch, start) = (Watch::new(TAKEOVER_AFTER), Instant::now());
        assert_eq!(watch.judge(&observed(5, true, 1), false, start), None);
        assert_eq!(watch.judge(&observed(5, false, 1), false, after(start, 200)), None);
        assert_eq!(watch.judge(&observed(5, false, 1), false, after(start, 400)), Some(Suspicion::Unlocked));
    }

    #[test]
    fn an_owner_that_takes_its_lock_again_in_time_is_not_suspected() {
        let (mut watch, start) = (Watch::new(TAKEOVER_AFTER), Instant::now());
        assert_eq!(watch.judge(&observed(5, false, 1), false, start), None);
        assert_eq!(watch.judge(&observed(5, true, 1), false, after(start, 200)), None);
        assert_eq!(watch.judge(&observed(5, false, 2), false, after(start, 400)), None);
    }

    #[test]
    fn c1_an_owner_that_lost_its_stream_and_its_session_is_suspected_at_once() {
        let (mut watch, start) = (Watch::new(TAKEOVER_AFTER), Instant::now());
        watch.lost_stream(1, start);
        assert!(watch.is_alarmed(start) && !watch.is_alarmed(after(start, 5_000)));
        assert_eq!(watch.judge(&observed(5, true, 1), false, start), None, "its session lives");
        assert_eq!(watch.judge(&observed(5, false, 1), false, start), Some(Suspicion::Disconnected));
        let mut watch = Watch::new(TAKEOVER_AFTER);
        watch.lost_stream(1, start);
        let later = watch.judge(&observed(5, false, 1), false, after(start, 5_000));
        assert_eq!(later, None, "the owner lived on without the stream");
        let mut watch = Watch::new(TAKEOVER_AFTER);
        watch.lost_stream(0, start);
        assert_eq!(watch.judge(&observed(5, false, 1), false, start), None, "that was another owner");
    }

    #[test]
    fn an_owner_that_hands_over_is_followed_at_once() {
        let mut watch = Watch::new(TAKEOVER_AFTER);
        let released = watch.judge(&observed(5, false, 1), true, Instant::now());
        assert_eq!(released, Some(Suspicion::Released));
        let seen = |is_locked| Observed { is_cut_off: true, ..observed(5, is_locked, 1) };
        let mut watch = Watch::new(TAKEOVER_AFTER);
        assert_eq!(watch.judge(&seen(true), true, Instant::now()), None, "it still has its lock");
        assert_eq!(watch.judge(&seen(false), false, Instant::now()), Some(Suspicion::CutOff));
    }
}
