//! A standby: it follows the owner by its stream or by the database, and sees whether the owner is gone.

use std::time::Instant;

use authority::Position;
use coordinator::{NodeAddress, OwnerHint, Standby};
use ledger::postgres::{self, Observed, OwnerRow, PostgresReader, Stream};
use ledger::{ErrorKind, RecoveryError};
use tokio::task::spawn_blocking;
use tokio::time::{sleep_until, timeout};

use super::replaced::claimed_owner;
use super::{Error, Followed, LOOK_TIMEOUT, Phase, Supervisor};
use crate::failure_detector::{Applied, FailureDetector, LOOK_ALARMED, ToRead};
use crate::fork::Fork;
use crate::own_row::{Failed, Name};
use crate::suspicion::Suspicion;
use crate::tail::Tail;

/// A standby that is so many records behind takes over almost at once: it applies them in a fraction of a second.
const MAX_HOT_LAG: u64 = 10_000;

impl Supervisor {
    /// Follows the owner, and takes over when it is gone.
    pub(super) async fn follow(&mut self) -> Result<Followed, Error> {
        self.detector.restart();
        let mut standby = None;
        let (mut news, mut phase) = (self.membership.news(), self.phase.clone());
        let mut stream = self.kept.stream();
        let mut seen = *stream.borrow_and_update();
        let (mut was_notified, mut reported) = (false, String::new());
        let mut hints = self.router.hints();
        let mut received = self.kept.received();
        self.shown_holding = None;
        while self.phase() != Phase::End {
            let mut is_locked = false;
            if self.phase() >= Phase::Drain && self.tail.take().is_some() {
                self.kept.stream_ended(false);
                self.router.set_replica(None);
                self.preparation.end(&self.database);
            }
            match self.look().await? {
                Ok(observed) => {
                    reported.clear();
                    self.route(&observed);
                    if !self.is_forked && self.may_own().await {
                        standby = self.catch_up(standby, &observed).await?;
                        self.own_row.is_hot =
                            standby.is_some() && self.applied_next.0 + MAX_HOT_LAG >= observed.next.0;
                        let applied = standby.as_ref().and_then(Applied::by);
                        let suspicion = self.detector.looked(&observed, applied, was_notified, self.now());
                        if let Some(why) = suspicion
                            && self.reachability.may_take_over(Instant::now())
                            && self.goes_first(&observed, why).await
                        {
                            let (running, back) = self.take_over(standby.take(), &observed, why).await?;
                            if let Some(running) = running {
                                return Ok(Followed::Owns(running));
                            }
                            standby = back;
                            self.detector.restart();
                        } else {
                            is_locked = observed.is_locked;
                            if self.own_row.is_hot && self.phase() < Phase::Drain {
                                self.preparation.begin(&self.database);
                            }
                        }
                    }
                }
                Err(error) => {
                    self.detector.restart();
                    self.is_in_doubt = false;
                    let hint = hints.borrow_and_update().clone();
                    self.route_by(&hint);
                    if reported != error {
                        tracing::warn!(%error, "the database cannot be used; the node looks again and again");
                        reported = error;
                    }
                }
            }
            let is_fed = self.kept.stream().borrow().fed_by.is_some();
            let pause = self.detector.pause(is_fed, is_locked, Instant::now());
            let looked_at = tokio::time::Instant::now();
            was_notified = loop {
                // What has changed during the look counts as well.
                let now = *stream.borrow_and_update();
                let before = std::mem::replace(&mut seen, now);
                standby = self.apply(standby, now).await?;
                if self.detector.stream_changed(&before, &now, self.now()) {
                    break false;
                }
                let pause = if self.hides_holding() { pause.min(LOOK_ALARMED) } else { pause };
                tokio::select! {
                    changed = news.changed() => break changed.is_ok(),
                    _ = phase.changed() => break false,
                    () = sleep_until(looked_at + pause) => break false,
                    _ = stream.changed() => {}
                    _ = received.changed(), if self.is_in_doubt => {}
                    Ok(()) = hints.changed(), if !reported.is_empty() => {
                        let hint = hints.borrow_and_update().clone();
                        self.route_by(&hint);
                    }
                }
            };
        }
        Ok(Followed::Ended)
    }

    /// Whether the row of this node must say what the node newly holds: others decide by it who takes over.
    fn hides_holding(&self) -> bool {
        self.is_in_doubt && self.shown_holding.is_some_and(|shown| shown != self.kept.holding())
    }

    /// Applies what the owner has sent and made durable.
    async fn apply(&mut self, standby: Option<Standby>, stream: Stream) -> Result<Option<Standby>, Error> {
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
    async fn goes_first(&mut self, observed: &Observed, why: Suspicion) -> bool {
        let (holding, knows_more) = (self.kept.holding(), self.kept.known_durable() > observed.next);
        let membership = &mut self.membership;
        let rivals = timeout(LOOK_TIMEOUT, async {
            if !knows_more && membership.is_complete().await? {
                return Ok(None);
            }
            membership.record_holding(holding).await?;
            membership.rivals().await.map(Some)
        });
        match rivals.await {
            Ok(Ok(None)) => true,
            Ok(Ok(Some(rivals))) => {
                let epoch = observed.owner.as_ref().map_or(0, |owner| owner.epoch);
                let why = if self.is_gone(observed) { Suspicion::NoOwner } else { why };
                let stream = *self.kept.stream().borrow();
                self.detector.goes_first((why, epoch), &stream, (holding, &rivals), Instant::now())
            }
            Ok(Err(_)) => false,
            Err(_) => {
                self.membership.hang_up();
                false
            }
        }
    }

    /// Whether the owner was an earlier process with the name and address of this one, which does not live any more, unless this one
    /// replaces it.
    fn is_gone(&self, observed: &Observed) -> bool {
        let is_earlier = |owner: &OwnerRow| self.is_this(owner) && !self.has_owned;
        let owns_name = !self.node.replaces && self.own_row.name() == Name::Held;
        owns_name && observed.owner.as_ref().is_some_and(is_earlier)
    }

    /// Never owns the ledger again, and says why.
    pub(super) fn refuse(&mut self, fork: Fork) {
        fork.report(&self.node.name, self.kept.end(), self.fork_file.as_deref());
        self.router.metrics().set_forked();
        (self.is_forked, self.tail, self.own_row.is_hot) = (true, None, false);
        self.preparation.end(&self.database);
        self.router.set_replica(None);
        self.kept.clear();
    }

    /// Looks at the ledger and its owner, and shows that this node lives.
    async fn look(&mut self) -> Result<Result<Observed, String>, Error> {
        let phase = self.phase();
        let looked = timeout(LOOK_TIMEOUT, async {
            let (membership, node) = (&mut self.membership, &self.node);
            self.own_row.announce_in_time(membership, node, self.applied_next, phase).await?;
            let known = self.kept.known_durable();
            let observed = self.membership.observe().await?;
            let epoch = observed.owner.as_ref().map_or(0, |owner| owner.epoch);
            let is_fed = phase < Phase::Drain && self.kept.stream().borrow().fed_by == Some(epoch);
            if self.shown_as_fed != Some(is_fed) {
                self.membership.set_fed(is_fed).await?;
                self.shown_as_fed = Some(is_fed);
            }
            // The server may be another one now. What this node holds decides who takes over, should the owner be gone too.
            if self.membership.take_is_new() {
                self.preparation.end(&self.database);
                self.shown_holding = None;
                let (membership, node) = (&mut self.membership, &self.node);
                self.own_row.announce(membership, node, self.applied_next, phase).await?;
            }
            self.is_in_doubt = !observed.is_recorded || known > observed.next;
            let holding = self.kept.holding();
            if self.shown_holding.is_none_or(|shown| self.is_in_doubt && shown != holding) {
                let is_shown = self.membership.record_holding(holding).await?;
                self.shown_holding = is_shown.then_some(holding);
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

    pub(super) fn is_this(&self, owner: &OwnerRow) -> bool {
        owner.node == self.node.name && owner.address == self.node.address
    }

    /// Sends requests to the owner that has announced itself.
    fn route(&mut self, observed: &Observed) {
        let Some(owner) = &observed.owner else { return };
        if self.is_this(owner) || self.routed_to.as_ref() == Some(owner) {
            return;
        }
        // A failover can undo the row of an owner that lives.
        let is_undone = |later: &OwnerRow| {
            later.epoch > owner.epoch && self.kept.stream().borrow().fed_by == Some(later.epoch)
        };
        if !self.routed_to.as_ref().is_some_and(is_undone) {
            self.route_to(owner.clone());
        }
    }

    /// Sends requests to the owner that another node has named, while the database cannot be asked.
    fn route_by(&mut self, hint: &OwnerHint) {
        let known = self.routed_to.as_ref().map_or(0, |owner| owner.epoch);
        if let Some(NodeAddress { node, address }) = claimed_owner(&self.own_address(), known, hint) {
            self.route_to(OwnerRow {
                node: node.to_string(),
                address: address.to_string(),
                epoch: hint.epoch,
            });
        }
    }

    fn route_to(&mut self, owner: OwnerRow) {
        let address =
            NodeAddress { node: owner.node.as_str().into(), address: owner.address.as_str().into() };
        tracing::info!(owner = owner.node, epoch = owner.epoch, "another node owns the ledger");
        let warm = self.warm_peers.iter().find(|(known, _)| *known == address);
        let peer = warm.map_or_else(|| (self.connect)(&address), |(_, peer)| peer.clone());
        let follows = !self.is_forked && self.phase() < Phase::Drain;
        self.tail = None;
        self.kept.stream_ended(false);
        self.tail = follows.then(|| Tail::follow(peer.clone(), owner.epoch, self.kept.clone()));
        self.router.forward(owner.epoch, address, peer);
        self.routed_to = Some(owner);
    }

    /// The standby with everything that was observed. A new one when there is none, or when its history was trimmed.
    async fn catch_up(
        &mut self,
        standby: Option<Standby>,
        observed: &Observed,
    ) -> Result<Option<Standby>, Error> {
        let held = self.kept.end().map(|end| end.next);
        let is_fed = self.kept.stream().borrow().fed_by.is_some();
        let to_read = FailureDetector::to_read(standby.as_ref(), observed, held, is_fed);
        if to_read == ToRead::Comparison {
            return Ok(self.check_loss().await.then_some(standby).flatten());
        }
        self.told_of_loss = false;
        if to_read == ToRead::Nothing {
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
