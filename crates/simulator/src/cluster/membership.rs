//! The rows by which nodes see each other: who is there, who owns the ledger, who holds what. A failover undoes the last of
//! them, as it does with batches.

use std::collections::{BTreeMap, BTreeSet};

use authority::{Position, Time};
use cluster::{ALIVE, BEAT, OWNER_BEAT, Suspicion};
use ledger::postgres::{Holding, Observed, Rival};

use super::database::Content;
use super::world::ClusterWorld;
use super::{ClusterEvent, NodeId};
use crate::env::SimEvent;
use auditor::Covered;
use auditor::history::Entry;

/// How often a standby and an owner say that they live.
pub(super) const ROW_MS: u64 = BEAT.as_millis() as u64;
pub(super) const OWNER_BEAT_MS: u64 = OWNER_BEAT.as_millis() as u64;
/// A node that was seen within this time can take over.
pub(super) const ALIVE_MS: u64 = ALIVE.as_millis() as u64;
/// How many states of the rows a failover can go back to.
const MAX_STATES: usize = 32;

#[derive(Clone, Default)]
pub(crate) struct Members {
    pub nodes: BTreeMap<NodeId, NodeRow>,
    pub owner: Option<OwnerRow>,
}

#[derive(Clone, Default)]
pub(crate) struct NodeRow {
    pub life: u64,
    pub beat: u64,
    pub seen: u64,
    pub applied: Position,
    pub is_hot: bool,
    pub is_draining: bool,
    /// What the node holds, and the server on which it said so.
    pub held: Option<(Holding, u64)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnerRow {
    pub node: NodeId,
    pub epoch: u64,
    /// The server that has everything which this owner knew to be durable.
    pub server: Option<u64>,
}

/// The states of the rows, by where the ledger ended when they were written.
#[derive(Default)]
pub(crate) struct MemberLog(BTreeMap<Position, Members>);

impl MemberLog {
    fn note(&mut self, end: Position, members: &Members) {
        self.0.insert(end, members.clone());
        while self.0.len() > MAX_STATES {
            self.0.pop_first();
        }
    }

    /// The rows of a server that has the ledger up to `end` alone.
    pub(crate) fn undo(&mut self, end: Position) -> Option<Members> {
        self.0.retain(|at, _| *at <= end);
        self.0.last_key_value().map(|(_, members)| members.clone())
    }
}

impl Content {
    /// Changes the rows in a transaction.
    pub(crate) fn write_members<T>(&mut self, write: impl FnOnce(&mut Members) -> T) -> T {
        let written = write(&mut self.members);
        let end = self.last().next;
        self.member_log.note(end, &self.members);
        written
    }

    /// The nodes that could take over.
    pub(crate) fn hot_nodes(&self) -> BTreeSet<NodeId> {
        self.members.nodes.iter().filter(|(_, row)| row.is_hot).map(|(id, _)| *id).collect()
    }

    /// As in production: the server is the one that the owner has found complete, and no node knows of more.
    fn is_complete(&self) -> bool {
        let next = self.last().next;
        self.members.owner.is_some_and(|owner| owner.server == Some(self.server_id))
            && self.members.nodes.values().all(|row| row.applied <= next)
    }

    fn rivals(&self, id: NodeId) -> Vec<Rival> {
        let rival = |(node, row): (&NodeId, &NodeRow)| Rival {
            node: format!("node-{node}"),
            holding: row.held.filter(|(_, server)| *server == self.server_id).map(|(holding, _)| holding),
            seen_ms: self.now - row.seen,
        };
        let could = |(node, row): &(&NodeId, &NodeRow)| **node != id && row.is_hot && !row.is_draining;
        self.members.nodes.iter().filter(could).map(rival).collect()
    }
}

impl ClusterWorld<'_> {
    /// What the node sees of the owner, and its own row with what it says about itself.
    pub(super) fn observe(&mut self, id: NodeId) -> Option<Observed> {
        let now = self.env.now;
        let mut database = self.database.lock();
        if !database.has_members(id) {
            self.nodes[id].is_in_doubt = false;
            return None;
        }
        let server = database.server_id;
        let node = &mut self.nodes[id];
        let applied = node.standby.as_ref().map(|standby| standby.next());
        let (life, is_hot, is_draining) = (node.life, node.is_hot, node.is_draining);
        let is_due = database.members.nodes.get(&id).is_none_or(|row| {
            (row.life, row.is_hot, row.is_draining) != (life, is_hot, is_draining) || now >= row.seen + ROW_MS
        });
        if is_due {
            node.unknown_since.take_if(|_| is_hot).into_iter().for_each(|since| node.unknown.add(since, now));
            database.write_members(|members| {
                let row = members.nodes.entry(id).or_default();
                if row.life != life {
                    // As in production: the time of an owner that was there before goes on.
                    let beat = if row.beat == 0 { 0 } else { row.beat + (now - row.seen) };
                    *row = NodeRow { life, beat, ..Default::default() };
                }
                (row.seen, row.is_hot, row.is_draining) = (now, is_hot, is_draining);
                row.applied = applied.unwrap_or(row.applied);
            });
        }
        let owner = database.members.owner;
        let is_recorded = owner.is_some_and(|owner| owner.server == Some(server));
        node.is_in_doubt = !is_recorded || node.kept.known_durable() > database.last().next;
        node.last_look = now;
        let holding = node.kept.holding();
        if node.shown.is_none_or(|(on, shown)| on != server || (node.is_in_doubt && shown != holding)) {
            node.shown = Some((server, holding));
            database.write_members(|members| members.record_holding(id, life, holding, server));
        }
        let owner_row = owner.and_then(|owner| database.members.nodes.get(&owner.node));
        let (beat, seen) = owner_row.map_or((0, now), |row| (row.beat, row.seen));
        Some(Observed {
            next: database.last().next,
            link: database.last().link,
            is_locked: database.lock.is_some(),
            owner: owner.map(|owner| ledger::postgres::OwnerRow {
                node: format!("node-{}", owner.node),
                address: String::new(),
                epoch: owner.epoch,
            }),
            beat,
            beat_age_ms: now - seen,
            is_recorded,
            is_draining,
            // Nodes of the simulator do not hand over for that.
            is_cut_off: false,
        })
    }

    /// Whether this standby may take over now.
    pub(super) fn goes_first(&mut self, id: NodeId, observed: &Observed, why: Suspicion) -> bool {
        let (now, _) = self.now(id);
        let node = &mut self.nodes[id];
        let (holding, knows_more) = (node.kept.holding(), node.kept.known_durable() > observed.next);
        let mut database = self.database.lock();
        if !knows_more && database.is_complete() {
            return true;
        }
        let (life, server) = (node.life, database.server_id);
        database.write_members(|members| members.record_holding(id, life, holding, server));
        node.shown = Some((server, holding));
        let (rivals, owner) = (database.rivals(id), database.members.owner);
        drop(database);
        let epoch = observed.owner.as_ref().map_or(0, |owner| owner.epoch);
        // As in production: an earlier process of this node does not live any more.
        let is_earlier = !node.has_owned && owner.is_some_and(|owner| owner.node == id);
        let why = if is_earlier { Suspicion::NoOwner } else { why };
        let stream = node.stream();
        let goes_first = node.detector.goes_first((why, epoch), &stream, (holding, &rivals), now);
        self.env.coverage.bump(Covered::Compared);
        self.env.note(&[163, id as u64, u64::from(goes_first)], || {
            let verb = if goes_first { "goes first" } else { "waits" };
            format!("node {id} {verb} with {holding:?}: {why}; {rivals:?}")
        });
        if !goes_first {
            self.env.coverage.bump(Covered::Yielded);
        }
        goes_first
    }

    /// Whether another node could take over now, and stays.
    pub(super) fn has_successor(&self, id: NodeId) -> bool {
        let database = self.database.lock();
        database.members.nodes.iter().any(|(other, row)| {
            *other != id && row.is_hot && !row.is_draining && database.now < row.seen + ALIVE_MS
        })
    }

    /// Says who owns the ledger and what time it has, and tells the other nodes.
    pub(super) fn announce_owner(&mut self, id: NodeId, epoch: u64, time: Time) -> Result<(), String> {
        let (now, life) = (self.env.now, self.nodes[id].life);
        let Some(last) = self.nodes[id].owner.as_ref().map(|owner| owner.last_durable) else { return Ok(()) };
        let mut database = self.database.lock();
        if !database.has_members(id) {
            return Ok(());
        }
        let rows = database.rows();
        let is_stored = rows.get(&last.first).is_some_and(|row| row.place == last);
        let is_last = is_stored && rows.last_key_value().is_some_and(|(_, row)| row.epoch as u64 == epoch);
        database.write_members(|members| {
            let row = members.nodes.entry(id).or_default();
            (row.life, row.beat, row.seen, row.is_hot) = (life, time.0, now, false);
            if is_last {
                let server = members.owner.and_then(|owner| owner.server);
                members.owner = Some(OwnerRow { node: id, epoch, server });
            }
        });
        drop(database);
        if !is_last {
            return Ok(());
        }
        self.tell_others(id);
        self.env.auditor.read(&Entry::Announced { epoch })
    }

    /// Says that the server is complete, if it is. Says whether it was said.
    pub(super) fn record_server(&mut self, id: NodeId) -> bool {
        let Some(owner) = self.nodes[id].owner.as_mut() else { return false };
        let (epoch, durable) = (owner.epoch, owner.engine.durable().next());
        let mut database = self.database.lock();
        let server = database.server_id;
        if owner.recorded_on == Some(server) || !database.has_members(id) {
            return owner.recorded_on == Some(server);
        }
        let is_announced =
            database.members.owner.is_some_and(|announced| (announced.node, announced.epoch) == (id, epoch));
        let last = database.rows().last_key_value().map(|(_, row)| (row.place.next, row.epoch as u64));
        let is_complete = last.is_some_and(|(next, of)| next >= durable && of == epoch);
        if is_announced && is_complete {
            owner.recorded_on = Some(server);
            database
                .write_members(|members| members.owner.iter_mut().for_each(|row| row.server = Some(server)));
        }
        owner.recorded_on == Some(server)
    }

    /// An owner says that it lives, takes its lock again, and says which server is complete.
    pub(super) fn beat(&mut self, id: NodeId) -> Result<(), String> {
        let (now, life) = (self.env.now, self.nodes[id].life);
        let Some(owner) = self.nodes[id].owner.as_ref().filter(|owner| owner.is_serving) else {
            return Ok(());
        };
        let (epoch, time) = (owner.epoch, owner.now(now));
        self.env.after(OWNER_BEAT_MS, SimEvent::Cluster(ClusterEvent::Beat { node: id, life }));
        let mut database = self.database.lock();
        if !database.has_members(id) {
            return Ok(());
        }
        database.try_lock(id, life);
        let is_announced =
            database.members.owner.is_some_and(|owner| (owner.node, owner.epoch) == (id, epoch));
        if database.members.nodes.get(&id).is_none_or(|row| row.life == life && row.is_hot) {
            database.write_members(|members| {
                let row = members.nodes.entry(id).or_default();
                (row.life, row.is_hot) = (life, false);
            });
        }
        drop(database);
        let is_slow = self.env.strikes(self.config.stalls, 60);
        let delay = if is_slow { self.env.rng.between(100, 3_000) } else { self.env.rng.between(0, 5) };
        let arrives = ClusterEvent::BeatArrives { node: id, life, epoch, time_ms: time.0 };
        self.env.after(delay, SimEvent::Cluster(arrives));
        if !is_announced {
            self.announce_owner(id, epoch, time)?;
        }
        if self.record_server(id) { Ok(()) } else { self.append_again(id) }
    }

    pub(super) fn beat_arrives(&mut self, (id, life): (NodeId, u64), epoch: u64, time_ms: u64) {
        let now = self.env.now;
        let mut database = self.database.lock();
        // What a session was sent first is executed first: no beat of an earlier epoch comes after the announcement of a later one.
        let is_announced_since =
            database.members.owner.is_some_and(|owner| owner.node == id && owner.epoch > epoch);
        if !database.has_members(id) || is_announced_since {
            return;
        }
        database.write_members(|members| {
            if let Some(row) = members.nodes.get_mut(&id).filter(|row| row.life == life) {
                (row.beat, row.seen) = (time_ms, now);
            }
        });
    }
}

impl Members {
    fn record_holding(&mut self, id: NodeId, life: u64, holding: Holding, server: u64) {
        if let Some(row) = self.nodes.get_mut(&id).filter(|row| row.life == life) {
            row.held = Some((holding, server));
        }
    }
}
