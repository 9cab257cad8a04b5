//! The failure detector of a standby: what to read, whether the owner is gone, whether it is this node's turn to take over,
//! and at which time.
//!
//! It has no clock, no database and no thread, so that production and a simulator drive the same code.

use std::time::{Duration, Instant};

use authority::{Position, Time};
use coordinator::Standby;
use ledger::postgres::{Holding, Observed, Rival, Stream};

use crate::owner_time::OwnerTime;
use crate::rules;
use crate::suspicion::{Suspicion, Watch};

/// How often a standby looks at the ledger and the owner. The database tells of handovers, not of a death.
const LOOK: Duration = Duration::from_millis(100);
/// The same for a standby that is fed by the owner.
const LOOK_WHILE_FED: Duration = Duration::from_millis(500);
/// The same after the stream of the owner was lost: the server notices a moment later that the session has ended too. And while others
/// must learn what this standby newly holds.
pub const LOOK_ALARMED: Duration = Duration::from_millis(20);
/// After a failover of the database, a standby that was not seen any more gets this long to say what it holds. The failover may have
/// undone that it was seen a moment before.
const YIELD: Duration = ALIVE;
/// A failover may have undone the row of another standby, which writes it again at its next look.
const INTRODUCTION: Duration = Duration::from_secs(1);
/// One that has not been seen for this long does not come back with what it held.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// A node that was seen within this time can take over.
pub const ALIVE: Duration = Duration::from_secs(6);

/// How long the owner's lock may be free while its stream goes on, or while an owner that took over has yet to take the lock.
const RELOCK: Duration = Duration::from_secs(2);

/// What a standby reads from the database next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToRead {
    /// It has everything, or the owner sends it.
    Nothing,
    /// The database ends before what the standby has applied, or otherwise: which batches it holds tells why.
    Comparison,
    Records,
}

/// What a standby has applied.
#[derive(Clone, Copy, Debug)]
pub struct Applied {
    /// The newest owner, and its newest time.
    pub epoch: u64,
    pub time: Time,
    /// What it applies next.
    pub next: Position,
}

impl Applied {
    /// None before the first owner.
    pub fn by(standby: &Standby) -> Option<Applied> {
        let epoch = standby.owner()?.epoch;
        Some(Applied { epoch, time: standby.time(), next: standby.next() })
    }
}

pub struct FailureDetector {
    watch: Watch,
    time: OwnerTime,
    /// What the standby had applied at the last look.
    applied: Option<Applied>,
    /// The newest owner that is known, also if a failover has undone its row.
    newest_epoch: u64,
    /// The owner that sends its batches.
    fed_by: Option<u64>,
    /// Since when it leaves the takeover to others.
    yields_since: Option<Instant>,
}

impl FailureDetector {
    /// An owner that is silent for `takeover_after` is suspected.
    pub fn new(takeover_after: Duration) -> FailureDetector {
        FailureDetector {
            watch: Watch::new(takeover_after),
            time: OwnerTime::default(),
            applied: None,
            newest_epoch: 0,
            fed_by: None,
            yields_since: None,
        }
    }

    /// Nothing could be seen for a while, so silence counts from now on.
    pub fn restart(&mut self) {
        self.watch.restart();
        (self.applied, self.yields_since) = (None, None);
    }

    /// What to read of the ledger that was observed. `held` is where the batches end that were received.
    pub fn to_read(
        standby: Option<&Standby>,
        observed: &Observed,
        held: Option<Position>,
        is_fed: bool,
    ) -> ToRead {
        let next = observed.next;
        match standby.map(Standby::next) {
            Some(applied) if applied > next => ToRead::Comparison,
            Some(applied) if applied == next => {
                let is_same = standby.is_some_and(|standby| standby.is_at(next, Some(observed.link)));
                if is_same { ToRead::Nothing } else { ToRead::Comparison }
            }
            // What the owner has sent is applied when the owner says that it is durable.
            Some(_) if is_fed && held >= Some(next) => ToRead::Nothing,
            _ => ToRead::Records,
        }
    }

    /// Notes what was observed, and what a standby has applied. Says whether the owner seems to be gone.
    /// `was_notified` means that some node has said that something changed; `clock` never steps.
    pub fn looked(
        &mut self,
        observed: &Observed,
        applied: Option<Applied>,
        was_notified: bool,
        (now, clock): (Instant, Time),
    ) -> Option<Suspicion> {
        if let Some(applied) = applied {
            self.time.heard(applied.epoch, applied.time, clock);
            self.newest_epoch = self.newest_epoch.max(applied.epoch);
        }
        if let Some(owner) = &observed.owner
            && observed.beat > 0
        {
            self.time.beat(owner.epoch, Time(observed.beat), observed.beat_age_ms, clock);
        }
        let epoch = observed.owner.as_ref().map_or(0, |owner| owner.epoch);
        self.newest_epoch = self.newest_epoch.max(epoch);
        let suspicion = self.watch.judge(observed, was_notified, now);
        // An owner whose stream goes on lives: its session ended alone, and it is opening another one, if it can.
        let may_relock = self.watch.unlocked_for(now) < RELOCK;
        let is_streaming = self.fed_by == Some(epoch);
        // The row and the lock are those of the owner before, which another node has replaced and is about to end.
        let is_replaced = self.newest_epoch > epoch;
        let suspicion = suspicion.filter(|why| match why {
            Suspicion::Unlocked => !(may_relock && (is_streaming || is_replaced)),
            Suspicion::Disconnected | Suspicion::Released | Suspicion::CutOff => !(may_relock && is_replaced),
            Suspicion::Silent(_) | Suspicion::CameBack | Suspicion::NoOwner => true,
        });
        // What was applied before this look was durable, so the database lacks it because a failover has undone it.
        let before = std::mem::replace(&mut self.applied, applied);
        let is_undone = before.is_some_and(|before| before.epoch > epoch && before.next > observed.next);
        let suspicion = suspicion.or(self.watch.has_come_back(is_undone.then_some(observed.next), now));
        if suspicion.is_none() {
            self.yields_since = None;
        }
        suspicion
    }

    /// Notes a change of the owner's stream. Says whether it is time to look at the database.
    pub fn stream_changed(&mut self, before: &Stream, after: &Stream, (now, clock): (Instant, Time)) -> bool {
        if let Some((epoch, time)) = after.time {
            self.time.heard(epoch, time, clock);
        }
        self.fed_by = after.fed_by;
        self.newest_epoch = self.newest_epoch.max(after.fed_by.unwrap_or_default());
        if after.losses > before.losses {
            self.watch.lost_stream(before.fed_by.unwrap_or_default(), now);
        }
        after.fed_by.is_none() && before.fed_by.is_some()
    }

    /// Whether this standby, which holds this much, may take over now although the database may have failed over. An owner that lives
    /// appends again what is lost, and the lock that it has lost is no sign of its death. Of the standbys the one that holds most goes
    /// first; `rivals` are the others.
    pub fn goes_first(
        &mut self,
        (why, epoch): (Suspicion, u64),
        stream: &Stream,
        (holding, rivals): (Holding, &[Rival]),
        now: Instant,
    ) -> bool {
        let is_gone = match why {
            Suspicion::NoOwner | Suspicion::Disconnected | Suspicion::Silent(_) | Suspicion::CameBack => true,
            Suspicion::Unlocked | Suspicion::Released | Suspicion::CutOff => {
                // The failover may have undone the row of a later owner, which lives.
                let epoch = self.newest_epoch.max(epoch);
                let has_lost_stream = stream.fed_by != Some(epoch) && self.watch.has_lost_stream(epoch);
                has_lost_stream || self.watch.is_silent(now)
            }
        };
        let waited = now.duration_since(*self.yields_since.get_or_insert(now));
        rules::passes(
            is_gone && waited >= INTRODUCTION && rivals.iter().all(|rival| lets_pass(rival, holding, waited)),
        )
    }

    /// This node owns the ledger. Streams of owners before it say nothing about the owners after it.
    pub fn owns(&mut self) {
        self.watch.forget_stream();
    }

    /// How long to wait before the next look.
    pub fn pause(&self, is_fed: bool, is_locked: bool, now: Instant) -> Duration {
        match is_fed && is_locked {
            _ if self.watch.is_alarmed(now) => LOOK_ALARMED,
            true => LOOK_WHILE_FED,
            false => LOOK,
        }
    }

    /// What is known of the owner's time.
    pub fn time(&self) -> OwnerTime {
        self.time.clone()
    }
}

/// Whether another node lets one pass that holds this much and has `waited` for the others.
fn lets_pass(rival: &Rival, holding: Holding, waited: Duration) -> bool {
    let seen = Duration::from_millis(rival.seen_ms);
    match rival.holding {
        Some(other) => other <= holding || seen >= ALIVE,
        None => seen >= FORGOTTEN || (seen >= ALIVE && waited >= YIELD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(epoch: u64, is_locked: bool) -> Observed {
        let node = "a".to_owned();
        let owner = ledger::postgres::OwnerRow { node, address: String::new(), epoch };
        Observed {
            next: Position(5),
            link: ledger::Link([0; 16]),
            is_locked,
            owner: Some(owner),
            beat: 0,
            beat_age_ms: 0,
            is_recorded: true,
            is_draining: false,
            is_cut_off: false,
        }
    }

    fn applied(epoch: u64, next: u64) -> Option<Applied> {
        Some(Applied { epoch, time: Time::ZERO, next: Position(next) })
    }

    fn fed_by(epoch: u64) -> Stream {
        Stream { fed_by: Some(epoch), ..Stream::default() }
    }

    #[test]
    fn an_owner_whose_batches_arrive_is_not_replaced_because_its_session_ended() {
        let (mut detector, start) = (FailureDetector::new(Duration::from_secs(3)), Instant::now());
        let clock = |ms| (start + Duration::from_millis(ms), Time::ZERO);
        detector.stream_changed(&Stream::default(), &fed_by(1), clock(0));
        let look =
            |detector: &mut FailureDetector, ms| detector.looked(&observed(1, false), None, false, clock(ms));
        for ms in [0, 1_000, 1_999] {
            assert_eq!(look(&mut detector, ms), None, "after {ms} ms");
        }
        assert_eq!(look(&mut detector, 2_000), Some(Suspicion::Unlocked), "it cannot lock again");
        let mut lost = FailureDetector::new(Duration::from_secs(3));
        lost.stream_changed(&Stream::default(), &fed_by(1), clock(0));
        lost.stream_changed(&fed_by(1), &Stream::default(), clock(0));
        look(&mut lost, 0);
        assert_eq!(look(&mut lost, 1_000), Some(Suspicion::Unlocked));
        let mut other = FailureDetector::new(Duration::from_secs(3));
        other.stream_changed(&Stream::default(), &fed_by(2), clock(0));
        look(&mut other, 0);
        assert_eq!(
            look(&mut other, 1_000),
            None,
            "the next owner sends them, which has yet to take the lock"
        );
        assert_eq!(look(&mut other, 2_000), Some(Suspicion::Unlocked));
    }

    /// A takeover from a silent owner ends the session of that owner, so that the lock was free for a moment. Another standby, which
    /// had lost the stream of the silent owner just before, replaced the new owner then.
    #[test]
    fn c2_a_lock_that_is_free_while_a_takeover_is_announced_is_no_sign_of_death() {
        let start = Instant::now();
        let clock = |ms| (start + Duration::from_millis(ms), Time::ZERO);
        let disconnected = |newest| {
            let mut detector = FailureDetector::new(Duration::from_secs(3));
            detector.stream_changed(&fed_by(1), &Stream { losses: 1, ..Stream::default() }, clock(0));
            detector.looked(&observed(1, false), applied(newest, 5), false, clock(100))
        };
        assert_eq!(disconnected(2), None, "the record of the takeover was read");
        assert_eq!(disconnected(1), Some(Suspicion::Disconnected));
        let cut_off = Observed { is_cut_off: true, ..observed(1, false) };
        let mut detector = FailureDetector::new(Duration::from_secs(3));
        assert_eq!(detector.looked(&cut_off, applied(2, 5), true, clock(0)), None);
        assert_eq!(detector.looked(&cut_off, None, true, clock(2_000)), Some(Suspicion::CutOff));
    }

    /// The owner that came back waited for a standby to receive what it appends, and the standbys, which held more, waited for somebody to
    /// append that again.
    #[test]
    fn c9_an_owner_that_came_back_after_its_successor_was_undone_is_replaced() {
        let start = Instant::now();
        let clock = |ms| (start + Duration::from_millis(ms), Time::ZERO);
        // The owner beats all the time.
        let looked = |detector: &mut FailureDetector, applied, ms| {
            let observed = Observed { beat: 1 + ms, ..observed(1, true) };
            detector.looked(&observed, applied, false, clock(ms))
        };
        let detector = || FailureDetector::new(Duration::from_secs(3));
        let (mut behind, mut same, mut ahead) = (detector(), detector(), detector());
        for ms in [0, 1, 1_500, 3_000] {
            assert_eq!(looked(&mut behind, applied(2, 9), ms), None, "its successor may append it again");
        }
        assert_eq!(looked(&mut behind, applied(2, 9), 3_001), Some(Suspicion::CameBack));
        assert_eq!(looked(&mut behind, applied(2, 5), 3_100), Some(Suspicion::CameBack));
        assert_eq!(looked(&mut behind, applied(2, 5), 3_200), None, "the successor has");
        for ms in [0, 3_000, 6_000] {
            assert_eq!(looked(&mut same, applied(1, 9), ms), None, "it appends again what it has appended");
        }
        // The successor appends, and could not announce itself yet. The standby has read more than it saw before.
        for step in 0..60 {
            let observed = Observed { next: Position(5 + step), beat: 1 + step, ..observed(1, true) };
            let suspicion = ahead.looked(&observed, applied(2, 6 + step), false, clock(100 * step));
            assert_eq!(suspicion, None, "{step}");
        }
    }

    #[test]
    fn c9_an_owner_whose_row_a_failover_has_undone_is_not_replaced_while_it_may_live() {
        let (mut detector, start) = (FailureDetector::new(Duration::from_secs(3)), Instant::now());
        let clock = |ms| (start + Duration::from_millis(ms), Time::ZERO);
        // The stream of the first owner was lost, and the second one sends its batches.
        detector.stream_changed(&fed_by(1), &Stream { losses: 1, ..Stream::default() }, clock(0));
        detector.stream_changed(&Stream::default(), &fed_by(2), clock(0));
        detector.looked(&observed(1, false), None, false, clock(0));
        let goes_first = |detector: &mut FailureDetector, stream: &Stream, ms| {
            let holding = Holding { epoch: 2, next: Position(9) };
            detector.goes_first((Suspicion::Unlocked, 1), stream, (holding, &[]), clock(ms).0)
        };
        assert!(!goes_first(&mut detector, &fed_by(2), 0));
        assert!(!goes_first(&mut detector, &fed_by(2), 2_000));
        let lost = Stream { losses: 2, ..Stream::default() };
        detector.stream_changed(&fed_by(2), &lost, clock(2_000));
        assert!(goes_first(&mut detector, &Stream::default(), 2_001), "its stream has ended, too");
    }

    #[test]
    fn c9_after_a_failover_an_owner_without_a_lock_is_not_replaced_while_it_may_live() {
        let observed = observed(1, false);
        let (start, holding) = (Instant::now(), Holding::default());
        let at = |ms| start + Duration::from_millis(ms);
        let (fed, lost) = (fed_by(1), Stream { losses: 1, ..Stream::default() });
        // A standby that wants to take over since the start.
        let followed = |stream_is_lost: bool| {
            let mut detector = FailureDetector::new(Duration::from_secs(3));
            detector.looked(&observed, None, false, (start, Time::ZERO));
            if stream_is_lost {
                detector.stream_changed(&fed, &lost, (start, Time::ZERO));
            }
            detector.goes_first((Suspicion::Unlocked, 1), &fed, (holding, &[]), start);
            detector
        };
        let goes_first = |detector: &mut FailureDetector, why, epoch, stream: &Stream, ms| {
            detector.goes_first((why, epoch), stream, (holding, &[]), at(ms))
        };
        for why in [Suspicion::Unlocked, Suspicion::Released] {
            assert!(!goes_first(&mut followed(false), why, 1, &fed, 2_999), "{why}: it may live");
            assert!(goes_first(&mut followed(false), why, 1, &fed, 3_000), "{why}: it is silent");
            assert!(goes_first(&mut followed(true), why, 1, &lost, 1_000), "{why}: its stream ended too");
            assert!(!goes_first(&mut followed(true), why, 1, &fed, 1_000), "{why}: its stream came back");
            assert!(!goes_first(&mut followed(true), why, 2, &lost, 1_000), "{why}: that was another owner");
        }
        let silent = Suspicion::Silent(Duration::from_secs(3));
        for (why, stream) in [(Suspicion::Disconnected, &lost), (silent, &fed), (Suspicion::NoOwner, &fed)] {
            assert!(!goes_first(&mut followed(false), why, 1, stream, 999), "{why}: others may hold more");
            assert!(goes_first(&mut followed(false), why, 1, stream, 1_000), "{why}");
        }
    }

    #[test]
    fn the_node_that_holds_most_goes_first_and_one_that_is_silent_is_not_waited_for_without_end() {
        let holding = |epoch, next| Holding { epoch, next: Position(next) };
        let rival = |holding, seen: Duration| Rival {
            node: "b".to_owned(),
            holding,
            seen_ms: seen.as_millis() as u64,
        };
        let (own, now, long) = (holding(2, 100), Duration::ZERO, YIELD);
        for (other, passes) in [(holding(2, 100), true), (holding(2, 101), false), (holding(1, 200), true)] {
            assert_eq!(lets_pass(&rival(Some(other), now), own, now), passes, "{other:?}");
        }
        assert!(!lets_pass(&rival(Some(holding(3, 50)), now), own, long), "a later owner has written it");
        assert!(lets_pass(&rival(Some(holding(3, 50)), ALIVE), own, now), "it is gone");
        assert!(!lets_pass(&rival(None, now), own, long), "it lives, and has not said what it holds");
        assert!(!lets_pass(&rival(None, ALIVE), own, now), "it may not have noticed the failover yet");
        assert!(lets_pass(&rival(None, ALIVE), own, long));
        assert!(lets_pass(&rival(None, FORGOTTEN), own, now));
    }
}
