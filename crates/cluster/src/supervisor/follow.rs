//! A standby: it follows the owner by its stream or by the database, and sees whether the owner is gone.

use std::time::{Duration, Instant};

use authority::{Position, Time};
use coordinator::{NodeAddress, Standby};
use ledger::postgres::{self, Holding, Observed, PostgresReader, Rival, Stream};
use ledger::{ErrorKind, RecoveryError};
use tokio::task::spawn_blocking;
use tokio::time::{sleep_until, timeout};

use super::{ALIVE, Error, Followed, LOOK_TIMEOUT, Phase, Supervisor};
use crate::fork::Fork;
use crate::own_row::Failed;
use crate::suspicion::Watch;
use crate::tail::Tail;

/// How often a standby looks at the ledger and the owner. The database tells of handovers, not of a death.
const LOOK: Duration = Duration::from_millis(100);
/// The same for a standby that is fed by the owner.
const LOOK_WHILE_FED: Duration = Duration::from_millis(500);
/// The same after the stream of the owner was lost: the server notices a moment later that the session has ended too.
const LOOK_ALARMED: Duration = Duration::from_millis(20);
/// A standby that is so many records behind takes over almost at once: it applies them in a fraction of a second.
const MAX_HOT_LAG: u64 = 10_000;
/// After a failover of the database, a standby that was not seen any more gets this long to say what it holds.
const YIELD: Duration = Duration::from_secs(3);
/// One that has not been seen for this long does not come back with what it held.
const FORGOTTEN: Duration = Duration::from_secs(600);

impl Supervisor {
    /// Follows the owner, and takes over when it is gone.
    pub(super) async fn follow(&mut self) -> Result<Followed, Error> {
        let (mut watch, mut standby) = (Watch::new(self.node.takeover_after), None);
        let (mut news, mut phase) = (self.membership.news(), self.phase.clone());
        let mut stream = self.kept.stream();
        let (mut was_told, mut reported) = (false, String::new());
        while self.phase() != Phase::End {
            let mut pause = LOOK;
            if self.phase() >= Phase::Drain && self.tail.take().is_some() {
                self.kept.stream_ended(false);
                self.router.set_replica(None);
            }
            match self.look().await? {
                Ok(observed) => {
                    reported.clear();
                    self.route(&observed);
                    if !self.is_forked && self.may_own().await {
                        standby = self.catch_up(standby, &observed).await?;
                        self.own_row.is_hot =
                            standby.is_some() && self.applied_next.0 + MAX_HOT_LAG >= observed.next.0;
                        self.note_time(standby.as_ref(), &observed);
                        let suspicion = watch.judge(&observed, was_told, Instant::now());
                        if suspicion.is_none() {
                            self.yields_since = None;
                        }
                        if let Some(why) = suspicion
                            && self.goes_first(&observed).await
                        {
                            let (running, back) = self.take_over(standby.take(), &observed, why).await?;
                            if let Some(running) = running {
                                return Ok(Followed::Owns(running));
                            }
                            standby = back;
                            watch.restart();
                        } else if self.kept.stream().borrow().fed_by.is_some() && observed.is_locked {
                            pause = LOOK_WHILE_FED;
                        }
                    }
                }
                Err(error) => {
                    watch.restart();
                    self.yields_since = None;
                    if reported != error {
                        tracing::warn!(%error, "the database cannot be used; the node looks again and again");
                        reported = error;
                    }
                }
            }
            if watch.is_alarmed(Instant::now()) {
                pause = LOOK_ALARMED;
            }
            let until = tokio::time::Instant::now() + pause;
            was_told = loop {
                let before = *stream.borrow_and_update();
                tokio::select! {
                    changed = news.changed() => break changed.is_ok(),
                    _ = phase.changed() => break false,
                    () = sleep_until(until) => break false,
                    _ = stream.changed() => {}
                }
                let now = *stream.borrow();
                standby = self.apply(standby, now).await?;
                if now.losses > before.losses {
                    watch.lost_stream(before.fed_by.unwrap_or_default(), Instant::now());
                }
                if now.fed_by.is_none() && before.fed_by.is_some() {
                    break false;
                }
            };
        }
        Ok(Followed::Ended)
    }

    /// Notes the owner's time, by its newest record and by its beat, whose age the database knows.
    fn note_time(&mut self, standby: Option<&Standby>, observed: &Observed) {
        let now = self.clock.now();
        if let Some((standby, owner)) = standby.and_then(|standby| Some((standby, standby.owner()?))) {
            self.time.heard(owner.epoch, standby.time(), now);
        }
        if let Some(owner) = observed.owner.as_ref().filter(|_| observed.beat > 0) {
            self.time.beat(owner.epoch, Time(observed.beat), observed.beat_age_ms, now);
        }
    }

    /// Applies what the owner has sent and made durable.
    async fn apply(&mut self, standby: Option<Standby>, stream: Stream) -> Result<Option<Standby>, Error> {
        if let Some((epoch, time)) = stream.time {
            self.time.heard(epoch, time, self.clock.now());
        }
        let Some(mut standby) = standby else { return Ok(None) };
        if standby.next() >= stream.durable {
            return Ok(Some(standby));
        }
        let kept = self.kept.clone();
        let applied = spawn_blocking(move || standby.apply_received(&kept).map(|_| standby));
        let applied = applied.await.map_err(|error| Error::Recovery(error.to_string()))?;
        let standby = applied.map_err(|error| Error::Recovery(error.to_string()))?;
        self.applied_next = standby.next();
        Ok(Some(standby))
    }

    /// Whether this standby may take over now. After a failover the database may lack what was answered: the standby that holds most
    /// appends it again, so it goes first.
    async fn goes_first(&mut self, observed: &Observed) -> bool {
        let (holding, knows_more) = (self.kept.holding(), self.kept.known_durable() > observed.next);
        let membership = &mut self.membership;
        let rivals = timeout(LOOK_TIMEOUT, async {
            if !knows_more && membership.is_complete().await? {
                return Ok(Vec::new());
            }
            membership.record_holding(holding).await?;
            membership.rivals().await
        });
        let rivals = match rivals.await {
            Ok(Ok(rivals)) => rivals,
            Ok(Err(_)) => return false,
            Err(_) => {
                self.membership.hang_up();
                return false;
            }
        };
        let waited = self.yields_since.get_or_insert_with(Instant::now).elapsed();
        rivals.iter().all(|rival| lets_pass(rival, holding, waited))
    }

    /// Never owns the ledger again, and says why.
    pub(super) fn refuse(&mut self, fork: Fork) {
        fork.report(&self.node.name, self.kept.end(), self.fork_file.as_deref());
        self.router.metrics().set_forked();
        (self.is_forked, self.tail, self.own_row.is_hot) = (true, None, false);
        self.router.set_replica(None);
        self.kept.clear();
    }

    /// Looks at the ledger and its owner, and shows that this node lives.
    async fn look(&mut self) -> Result<Result<Observed, String>, Error> {
        let phase = self.phase();
        let looked = timeout(LOOK_TIMEOUT, async {
            let (membership, node) = (&mut self.membership, &self.node);
            self.own_row.announce_in_time(membership, node, self.applied_next, phase).await?;
            let observed = self.membership.observe().await?;
            let epoch = observed.owner.as_ref().map_or(0, |owner| owner.epoch);
            let is_fed = phase < Phase::Drain && self.kept.stream().borrow().fed_by == Some(epoch);
            if self.shown_as_fed != Some(is_fed) {
                self.membership.set_fed(is_fed).await?;
                self.shown_as_fed = Some(is_fed);
            }
            // The server may be another one now. What this node holds decides who takes over, should the owner be gone too.
            if self.membership.take_is_new() {
                self.membership.record_holding(self.kept.holding()).await?;
            }
            Ok(observed)
        });
        Ok(match looked.await {
            Ok(Ok(observed)) => {
                self.own_row.note_order(observed.is_draining);
                Ok(observed)
            }
            Ok(Err(Failed::Database(error))) => Err(error.to_string()),
            Ok(Err(Failed::Refused(error))) => return Err(error),
            Err(_) => {
                self.membership.hang_up();
                Err("PostgreSQL does not answer".to_owned())
            }
        })
    }

    /// Whether this node may take over. One that leaves does only when all others are gone or leave too: its clients would
    /// have no owner.
    async fn may_own(&mut self) -> bool {
        match self.phase() {
            Phase::Serve | Phase::Replace => true,
            Phase::Drain => !self.has_successor().await,
            Phase::End => false,
        }
    }

    /// Sends requests to the owner that has announced itself.
    fn route(&mut self, observed: &Observed) {
        let Some(owner) = &observed.owner else { return };
        let is_this = owner.node == self.node.name && owner.address == self.node.address;
        if is_this || self.routed_to.as_ref() == Some(owner) {
            return;
        }
        let address =
            NodeAddress { node: owner.node.as_str().into(), address: owner.address.as_str().into() };
        tracing::info!(owner = owner.node, epoch = owner.epoch, "another node owns the ledger");
        let warm = self.warm_peers.iter().find(|(known, _)| *known == address);
        let peer = warm.map_or_else(|| (self.connect)(&address), |(_, peer)| peer.clone());
        let follows = !self.is_forked && self.phase() < Phase::Drain;
        self.tail = follows.then(|| Tail::follow(peer.clone(), owner.epoch, self.kept.clone()));
        self.router.forward(owner.epoch, address, peer);
        self.routed_to = Some(owner.clone());
    }

    /// The standby with everything that was observed. A new one when there is none, or when its history was trimmed.
    async fn catch_up(
        &mut self,
        standby: Option<Standby>,
        observed: &Observed,
    ) -> Result<Option<Standby>, Error> {
        let (next, held) = (observed.next, self.kept.end().map(|end| end.next));
        let is_fed = self.kept.stream().borrow().fed_by.is_some();
        let applied_next = standby.as_ref().map(Standby::next);
        if applied_next.is_some_and(|applied| applied > next) {
            return Ok(self.check_loss().await.then_some(standby).flatten());
        }
        self.told_of_loss = false;
        // What the owner has sent is applied when the owner says that it is durable.
        let is_coming = applied_next.is_some() && is_fed && held >= Some(next);
        if applied_next == Some(next) || is_coming {
            self.tail.iter().for_each(Tail::caught_up);
            return Ok(standby);
        }
        let reader = PostgresReader::new(self.database.clone()).keeping(self.kept.clone());
        let caught_up = spawn_blocking(move || match standby {
            Some(mut standby) => {
                let caught_up = standby.catch_up(&reader);
                (Some(standby), caught_up.map(|_| ()))
            }
            None => match Standby::open(&reader) {
                Ok(standby) => (Some(standby), Ok(())),
                Err(error) => (None, Err(error)),
            },
        });
        let (standby, caught_up) = caught_up.await.map_err(|error| Error::Recovery(error.to_string()))?;
        match caught_up {
            Ok(()) => {
                self.applied_next = standby.as_ref().map_or(Position::ZERO, Standby::next);
                self.router.set_replica(standby.as_ref().map(|standby| standby.replica().clone()));
                self.tail.iter().for_each(Tail::caught_up);
                Ok(standby)
            }
            Err(error) => Ok(self.failed_to_read(&error)?.then_some(standby).flatten()),
        }
    }

    /// The database ends before what this standby has applied: it has lost commits, which this node or another one holds,
    /// or somebody has gone on without them. Says whether the standby may go on.
    async fn check_loss(&mut self) -> bool {
        let (database, kept) = (self.database.clone(), self.kept.clone());
        let compared = spawn_blocking(move || postgres::standing(&database, &kept)).await;
        match compared {
            Ok(Ok(postgres::Standing::Forked { at })) => {
                self.refuse(Fork { at, known: self.kept.known_durable() });
                false
            }
            Ok(Ok(postgres::Standing::Behind)) if !self.told_of_loss => {
                self.told_of_loss = true;
                tracing::warn!(
                    applied_up_to = self.applied_next.0 - 1,
                    "PostgreSQL has lost records that this standby has applied; the owner or the next one appends them again"
                );
                true
            }
            Ok(Ok(postgres::Standing::Whole | postgres::Standing::Behind) | Err(_)) | Err(_) => true,
        }
    }

    /// Says whether a standby goes on after an error, with what it has. Otherwise it begins again, or this node must end.
    pub(super) fn failed_to_read(&mut self, error: &RecoveryError) -> Result<bool, Error> {
        if let Some(fork) = Fork::of(error, self.kept.known_durable()) {
            self.refuse(fork);
            return Ok(false);
        }
        match error {
            RecoveryError::Ledger(cause) if cause.kind() == ErrorKind::Unavailable => {
                tracing::warn!(%error, "the ledger cannot be read; the standby tries again");
                Ok(true)
            }
            RecoveryError::Ledger(cause) if cause.kind() == ErrorKind::Trimmed => {
                tracing::warn!(%error, "the standby begins again with the newest snapshot");
                self.kept.clear();
                Ok(false)
            }
            _ => Err(Error::Recovery(error.to_string())),
        }
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
