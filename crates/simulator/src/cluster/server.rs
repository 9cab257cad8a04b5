//! The server of the database: when it executes statements, what it answers, and what the auditor reads of it.

use authority::Position;
use ledger::postgres::{BatchRow, End, Inserted, Place};

use super::database::Content;
use super::membership::{ALIVE_MS, OWNER_BEAT_MS, ROW_MS};
use super::statement::{Outcome, Sent, Statement};
use super::stream::LOOK_ALARMED_MS;
use super::world::{ClusterWorld, Refusal};
use super::{ClusterEvent, NodeId};
use crate::env::SimEvent;
use auditor::Covered;
use auditor::history::{Entry, Recorded, StoredBatch};
use ledger::record;

/// As in production: a connection whose peer is gone is noticed within about this time.
const SILENCE_MS: u64 = 5_000;
/// As in production: so long after a failover a standby can say that it is there.
const INTRODUCTION_MS: u64 = 1_000;

impl ClusterWorld<'_> {
    /// Sends the statements on their way that nodes have begun.
    pub(super) fn dispatch(&mut self) -> Result<(), String> {
        let sent = std::mem::take(&mut self.pipe.borrow_mut().sent);
        for sent in sent {
            let now = self.env.now;
            let answer =
                |outcome| ClusterEvent::Answer { id: sent.id, node: sent.node, life: sent.life, outcome };
            if let Statement::Pause { ms } = sent.statement {
                let done = answer(Some(Outcome::Done));
                self.env.after(ms, SimEvent::Cluster(done));
                continue;
            }
            if let Statement::Insert { row, .. } = &sent.statement {
                self.env.auditor.read(&Entry::Begun { node: sent.node as u64, place: row.place, now })?;
            }
            let is_cut = self.database.lock().is_cut(sent.node);
            if is_cut {
                if let Statement::Insert { row, .. } = &sent.statement {
                    self.unanswered.entry((sent.node, row.place.first)).or_insert(false);
                }
                let silence = self.env.rng.between(200, SILENCE_MS);
                let silent = answer(None);
                self.env.after(silence, SimEvent::Cluster(silent));
                continue;
            }
            let is_slow = self.env.strikes(self.config.stalls, 15);
            let delay = if is_slow { self.env.rng.between(100, 2_500) } else { self.env.rng.between(0, 2) };
            let arrives = (now + delay).max(self.stalled_until);
            let is_insert = matches!(sent.statement, Statement::Insert { .. });
            // The connection is lost, and the server does not know yet.
            let is_late = self.env.strikes(is_insert, self.config.late_commits_permille);
            if is_late {
                let lost = answer(None);
                self.env.after(1, SimEvent::Cluster(lost));
                let later = self.env.rng.between(20, 3_000);
                let late = ClusterEvent::Execute { sent, is_awaited: false };
                self.env.at(arrives + later, SimEvent::Cluster(late));
            } else {
                self.env.at(arrives, SimEvent::Cluster(ClusterEvent::Execute { sent, is_awaited: true }));
            }
        }
        Ok(())
    }

    /// A statement is executed. Its session may have been ended meanwhile, by a restart of the server; or the node is gone, or cut
    /// off, and the server does not know yet.
    pub(super) fn execute(&mut self, sent: Sent, is_awaited: bool) -> Result<(), String> {
        let Sent { id, node, life, session, statement } = sent;
        if is_awaited && self.database.lock().is_cut(node) {
            let silence = self.env.rng.between(200, SILENCE_MS);
            let silent = ClusterEvent::Answer { id, node, life, outcome: None };
            self.env.after(silence, SimEvent::Cluster(silent));
            if let Statement::Insert { row, .. } = &statement {
                self.unanswered.entry((node, row.place.first)).or_insert(false);
            }
            return self.execute(Sent { id, node, life, session, statement }, false);
        }
        let answer_after = |world: &mut Self, delay: u64, outcome: Option<Outcome>| {
            if is_awaited {
                world.env.after(delay, SimEvent::Cluster(ClusterEvent::Answer { id, node, life, outcome }));
            }
        };
        let delay = self.env.rng.between(0, 2);
        let mut database = self.database.lock();
        if let Statement::Connect = statement {
            let is_reachable = database.is_reachable(node);
            let outcome = is_reachable.then(|| Outcome::Connected(database.connect(node, life)));
            drop(database);
            answer_after(self, delay, outcome);
            return Ok(());
        }
        let Some(primary) = database.server(session) else {
            drop(database);
            answer_after(self, delay, None);
            return Ok(());
        };
        let is_current = primary == database.current();
        let (is_synchronous, serves_until) =
            (database.is_synchronous, database.primaries[primary].serves_until);
        let first = match &statement {
            Statement::Insert { row, .. } => Some(row.place.first),
            _ => None,
        };
        let outcome = match &statement {
            Statement::Insert { before, row } => {
                let inserted = database.insert(primary, *before, row);
                let oldest = database.rows().keys().next().copied().unwrap_or_default();
                drop(database);
                if oldest > row.place.first {
                    self.env.coverage.bump(Covered::TrimmedZombie);
                }
                let is_stored = matches!(inserted, Inserted::Stored { .. });
                if is_stored && !is_current {
                    self.env.auditor.read(&Entry::StoredInVain { epoch: row.epoch as u64 })?;
                }
                if is_stored && is_current {
                    if !is_awaited {
                        self.unanswered
                            .entry((node, row.place.first))
                            .and_modify(|is_stored| *is_stored = true);
                        self.env.coverage.bump(Covered::LateCommit);
                    }
                    if life != self.nodes[node].life || !self.nodes[node].is_up {
                        self.env.coverage.bump(Covered::CommitOfTheDead);
                    }
                    self.stored((node, life), row)?;
                }
                Outcome::Inserted(inserted)
            }
            other => {
                let outcome = read(&database, primary, other);
                drop(database);
                outcome
            }
        };
        let commits =
            matches!(outcome, Outcome::Inserted(Inserted::Stored { .. }) | Outcome::Committed { .. });
        if !commits || !is_synchronous {
            return self.answer_or_lose(delay, (id, node, life, session), (is_awaited, first), outcome);
        }
        if !is_current {
            // A server that was replaced waits for its replica until it is shut down.
            self.env.coverage.bump(Covered::DeposedServer);
            answer_after(self, serves_until.saturating_sub(self.env.now), None);
            return Ok(());
        }
        let wait = self.replicate(primary);
        self.waits_for_replica.insert(id, primary);
        if is_awaited && self.env.strikes(true, self.config.warnings_permille) {
            self.env.coverage.bump(Covered::CanceledWait);
            let outcome = match outcome {
                Outcome::Inserted(_) => Outcome::Inserted(Inserted::Stored { is_warned: true }),
                _ => Outcome::Committed { is_warned: true },
            };
            self.waits_for_replica.remove(&id);
            answer_after(self, delay, Some(outcome));
            return Ok(());
        }
        self.answer_or_lose(wait + delay, (id, node, life, session), (is_awaited, first), outcome)
    }

    /// Sends an answer, or loses the connection with it.
    fn answer_or_lose(
        &mut self,
        delay: u64,
        (id, node, life, session): (u64, NodeId, u64, u64),
        (is_awaited, first): (bool, Option<Position>),
        outcome: Outcome,
    ) -> Result<(), String> {
        if !is_awaited {
            return Ok(());
        }
        let is_lost = self.env.strikes(true, self.config.lost_answers_permille);
        if is_lost {
            self.env.coverage.bump(Covered::LostStatement);
            self.database.lock().sessions.remove(&session);
            if let (Outcome::Inserted(Inserted::Stored { .. }), Some(first)) = (&outcome, first) {
                self.unanswered.insert((node, first), true);
            }
        }
        // A lost connection is noticed before the replica has answered, or after.
        let delay = if is_lost { self.env.rng.below(delay + 1) } else { delay };
        let outcome = Some(outcome).filter(|_| !is_lost);
        self.env.after(delay, SimEvent::Cluster(ClusterEvent::Answer { id, node, life, outcome }));
        Ok(())
    }

    /// An answer reaches its node, unless a server that was replaced meanwhile owes it to its replica.
    pub(super) fn answered(&mut self, id: u64, node: NodeId, outcome: Option<Outcome>) -> Result<(), String> {
        let waited = self.waits_for_replica.remove(&id);
        let current = self.database.lock().current();
        let outcome = outcome.filter(|_| waited.is_none_or(|primary| primary == current));
        self.pipe.borrow_mut().answer(id, outcome);
        self.step_takeover(node)?;
        self.step_owner(node)
    }

    /// Plans when the replica has everything that is committed now. Returns how long that takes.
    fn replicate(&mut self, primary: usize) -> u64 {
        let now = self.env.now;
        let lag = if self.env.faults { self.env.rng.between(0, self.config.max_lag_ms) } else { 1 };
        let mut database = self.database.lock();
        let next = database.last().next;
        let server = &mut database.primaries[primary];
        server.replica_due = server.replica_due.max(now + lag);
        let due = server.replica_due;
        drop(database);
        self.env.at(due, SimEvent::Cluster(ClusterEvent::Replicated { primary, next }));
        due - now
    }

    pub(super) fn replicated(&mut self, primary: usize, next: Position) -> Result<(), String> {
        let mut database = self.database.lock();
        if primary != database.current() {
            return Ok(());
        }
        let server = &mut database.primaries[primary];
        server.replicated = server.replicated.max(next);
        drop(database);
        self.audit_up_to(next)
    }

    /// A batch was stored in the primary: the auditor reads it, and its records when they are durable.
    fn stored(&mut self, (node, life): (NodeId, u64), row: &BatchRow) -> Result<(), String> {
        let Place { first, next, link } = row.place;
        let epoch = row.epoch as u64;
        self.env.note(&[140, node as u64, first.0], || {
            format!("node {node} stores {first} to {} at epoch {epoch}", next.0 - 1)
        });
        let body = row.unpack().map_err(|error| error.to_string())?.into();
        let stored = StoredBatch { node: node as u64, epoch, first, next, link, body };
        let is_repeat = self.audited.get(&first) == Some(&row.place);
        if first < self.audited_next && !is_repeat {
            self.lost(first, (node, life), epoch)?;
        }
        self.env.auditor.read(&Entry::Stored(stored))?;
        // Another failover may bring back what was lost.
        self.must_refuse.retain(|refusal| refusal.place != row.place);
        if is_repeat {
            self.env.coverage.bump(match self.nodes[node].is_serving() {
                true => Covered::AppendedAgainByOwner,
                false => Covered::AppendedAgainByStandby,
            });
        }
        if self.database.lock().is_synchronous { Ok(()) } else { self.audit_up_to(next) }
    }

    /// The records before a position are durable now.
    pub(super) fn audit_up_to(&mut self, next: Position) -> Result<(), String> {
        let from = self.audited_next;
        if next <= from {
            return Ok(());
        }
        let rows: Vec<BatchRow> = {
            let database = self.database.lock();
            database.rows().range(from..next).map(|(_, row)| row.clone()).collect()
        };
        for row in rows {
            if row.place.next > next {
                break;
            }
            let body = row.unpack().map_err(|error| error.to_string())?;
            for read in row.records(&body) {
                let (position, bytes) = read.map_err(|error| error.to_string())?;
                let record = record::decode(bytes).map_err(|error| error.to_string())?;
                self.env.note(&[141, position.0, record.at.0], || {
                    format!("durable {position} at {}: {:?}", record.at, record.event)
                });
                let recorded = Recorded { position, at: record.at, prev: record.prev, event: record.event };
                self.env.auditor.read(&Entry::Recorded(recorded))?;
                self.records.push(bytes.to_vec());
            }
            self.audited.insert(row.place.first, row.place);
            self.epochs.insert(row.place.first, row.epoch as u64);
            self.audited_next = row.place.next;
        }
        Ok(())
    }

    /// The epoch of the batch that was durable at a position.
    fn lost_epoch(&self, from: Position) -> u64 {
        self.epochs.range(..=from).next_back().map_or(0, |(_, epoch)| *epoch)
    }

    /// Another batch was stored where one had been durable. The loss must be one that the product allows, and is told.
    fn lost(&mut self, from: Position, (writer, life): (NodeId, u64), epoch: u64) -> Result<(), String> {
        self.env.coverage.bump(Covered::Lost);
        // An owner that was replaced while it stood still, and that the failover has made the last one again, may be faster than its
        // successor. No node can know better.
        let lost_epoch = self.lost_epoch(from);
        let is_owner = self.nodes[writer].life != life
            || self.nodes[writer].owner.as_ref().is_some_and(|owner| owner.epoch == epoch);
        let is_of_earlier_owner = is_owner && epoch < lost_epoch;
        self.env.note(&[142, from.0], || format!("the records from {from} on are lost"));
        let Some(place) = self.audited.get(&from).copied() else { return Ok(()) };
        let decided_at = self.nodes[writer].decided_at;
        let is_excused = |id: &NodeId| is_of_earlier_owner || self.is_unheard(*id, decided_at);
        let excused = (0..self.nodes.len()).filter(is_excused).map(|id| id as u64).collect();
        // What has reached a standby a moment before may not be known to the others.
        let since = decided_at.saturating_sub(LOOK_ALARMED_MS);
        self.env.auditor.read(&Entry::Lost { place, since, excused })?;
        for node in self.nodes.iter().filter(|node| self.env.auditor.is_known(node.id as u64, place)) {
            let (node, life) = (node.id, node.life);
            self.must_refuse.push(Refusal { node, life, from, place, can_see_since: None });
        }
        self.records.truncate(from.0 as usize - 1);
        self.audited.split_off(&from);
        self.epochs.split_off(&from);
        self.audited_next = from;
        Ok(())
    }

    /// Whether others could not hear of a node for so long, at `since` or after it, that they may go on without it. A node says
    /// every two seconds that it lives, and counts as alive for six. One that is new, or of which a failover has undone that it was
    /// there, has a second to say so. An owner says more often that it lives, and is replaced sooner, also when its stream is lost as well as its session;
    /// one that was cut off notices later that its session is gone.
    fn is_unheard(&self, id: NodeId, since: u64) -> bool {
        let (node, now) = (&self.nodes[id], self.env.now);
        let silent_ms = node.silences.longest(since, now);
        let owner_silent_ms = node.silences.longest(since.saturating_sub(SILENCE_MS), now);
        let is_replaced = node.owner.is_some()
            && (owner_silent_ms + OWNER_BEAT_MS > self.config.takeover_after_ms
                || node.link_cuts.longest(since, now) > 0);
        let mut unknown = node.unknown.clone();
        unknown.add(node.unknown_since.unwrap_or(now), now);
        is_replaced || silent_ms + ROW_MS > ALIVE_MS || unknown.longest(since, now) >= INTRODUCTION_MS
    }
}

/// What a server answers that changes nothing.
fn read(database: &Content, primary: usize, statement: &Statement) -> Outcome {
    match statement {
        Statement::Commit => Outcome::Committed { is_warned: false },
        Statement::Stored { from, limit } => Outcome::Places(database.places(primary, *from, *limit)),
        Statement::Last => Outcome::Places(vec![database.last()]),
        Statement::End { last } => {
            let is_last = database.is_last(primary, *last);
            Outcome::End(End { is_last, has_replicas: database.is_synchronous })
        }
        Statement::Insert { .. } | Statement::Connect | Statement::Pause { .. } => Outcome::Done,
    }
}
