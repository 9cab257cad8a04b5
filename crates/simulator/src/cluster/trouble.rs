//! The faults of machines, networks and the database that come and go.

use super::world::ClusterWorld;
use super::{ClusterEvent, NodeId};
use crate::env::SimEvent;
use auditor::Covered;
use auditor::history::Entry;

/// The server executes what has arrived for this long after its client is gone.
const MAX_NOTICE_MS: u64 = 4_000;

impl ClusterWorld<'_> {
    pub(super) fn trouble(&mut self) -> Result<(), String> {
        if !self.env.faults {
            return Ok(());
        }
        let next = self.env.rng.between(200, 1_500);
        self.env.after(next, SimEvent::Trouble);
        // Most of the time the owner is the one that matters.
        let owner = self.nodes.iter().find(|node| node.is_serving()).map(|node| node.id);
        let any = self.env.rng.below(self.nodes.len() as u64) as usize;
        let victim = owner.filter(|_| self.env.rng.chance(600)).unwrap_or(any);
        let config = self.config.clone();
        if self.env.strikes(config.crashes, 120) {
            self.crash(victim)?;
        }
        if self.env.strikes(config.suspends, 100) {
            self.suspend(victim);
        }
        if self.env.strikes(config.database_cuts, 100) {
            self.cut_from_database(victim);
        }
        if self.env.strikes(config.link_cuts, 120) {
            let peer =
                (victim + 1 + self.env.rng.below(self.nodes.len() as u64 - 1) as usize) % self.nodes.len();
            self.cut_link(victim, peer);
        }
        if self.env.strikes(config.drains, 80) {
            self.drain(victim)?;
        }
        if self.env.strikes(config.stalls, 60) {
            let span = self.env.rng.between(200, 5_000);
            self.stalled_until = self.env.now + span;
            self.env.note(&[150, span], || format!("the database stands still for {span} ms"));
        }
        if self.env.strikes(config.restarts, 60) {
            self.restart_database()?;
        }
        if self.env.strikes(config.failovers, 130) {
            self.fail_over()?;
            // The machine of the owner had something to do with it.
            if self.env.strikes(config.crashes, 300) {
                self.crash(victim)?;
            } else if self.env.strikes(config.suspends, 300) {
                self.suspend(victim);
            }
        }
        if self.env.strikes(config.cold_starts, 40) {
            self.env.coverage.bump(Covered::ColdStart);
            (0..self.nodes.len()).try_for_each(|node| self.crash(node))?;
        }
        Ok(())
    }

    /// The process of a node is gone; another one is started later.
    pub(super) fn crash(&mut self, id: NodeId) -> Result<(), String> {
        if !self.nodes[id].is_up {
            return Ok(());
        }
        self.env.note(&[151, id as u64], || format!("node {id} is killed"));
        let life = self.nodes[id].life;
        self.nodes[id].end(&self.config);
        self.env.auditor.read(&Entry::Forgot { node: id as u64, own_alone: false })?;
        let noticed_at = self.env.now + self.env.rng.between(0, MAX_NOTICE_MS);
        self.database.lock().end_sessions_of(id, life, noticed_at);
        for peer in 0..self.nodes.len() {
            let delay = self.env.rng.between(0, 30);
            self.lose_link(peer, id, delay);
        }
        let delay = self.env.rng.between(50, 4_000);
        self.env.after(delay, SimEvent::Cluster(ClusterEvent::Start { node: id }));
        Ok(())
    }

    pub(super) fn lose_link(&mut self, node: NodeId, peer: NodeId, delay: u64) {
        if node != peer && self.nodes[node].is_up {
            let life = self.nodes[node].life;
            let lost_at = self.env.now;
            self.env.after(delay, SimEvent::Cluster(ClusterEvent::LinkLost { node, life, peer, lost_at }));
        }
    }

    fn suspend(&mut self, id: NodeId) {
        let span = if self.env.rng.chance(500) {
            self.env.rng.between(100, 4_000)
        } else {
            self.env.rng.between(4_000, 25_000)
        };
        if self.nodes[id].is_serving() {
            self.env.coverage.bump(Covered::OwnerSuspended);
        }
        self.env.note(&[152, id as u64, span], || format!("node {id} stands still for {span} ms"));
        let (now, until) = (self.env.now, self.env.now + span);
        let node = &mut self.nodes[id];
        node.suspended_until = node.suspended_until.max(until);
        node.silences.add(now, until);
    }

    fn cut_from_database(&mut self, id: NodeId) {
        let span = self.env.rng.between(200, 9_000);
        if self.nodes[id].is_serving() {
            self.env.coverage.bump(Covered::OwnerCutFromDatabase);
        }
        self.env
            .note(&[153, id as u64, span], || format!("node {id} is cut from the database for {span} ms"));
        let until = self.env.now + span;
        self.nodes[id].silences.add(self.env.now, until);
        let life = self.nodes[id].life;
        let noticed_at = self.env.now + self.env.rng.between(0, MAX_NOTICE_MS);
        let mut database = self.database.lock();
        database.cut_until.insert(id, until);
        // The server notices after a while, or the connection outlives the cut.
        if span > 4_000 {
            database.end_sessions_of(id, life, noticed_at);
        }
    }

    fn cut_link(&mut self, a: NodeId, b: NodeId) {
        let span = self.env.rng.between(200, 9_000);
        self.env.coverage.bump(Covered::LinkCut);
        self.env
            .note(&[154, a as u64, b as u64, span], || format!("nodes {a} and {b} are cut for {span} ms"));
        let until = self.env.now + span;
        self.cut_links.insert((a.min(b), a.max(b)), until);
        for id in [a, b] {
            self.nodes[id].link_cuts.add(self.env.now, until);
        }
        let delays = [self.env.rng.between(0, 5_000), self.env.rng.between(0, 5_000)];
        self.lose_link(a, b, delays[0]);
        self.lose_link(b, a, delays[1]);
    }

    /// An operator wants the node to leave; it is replaced later.
    fn drain(&mut self, id: NodeId) -> Result<(), String> {
        let has_successor = self.has_successor(id);
        let node = &mut self.nodes[id];
        let Some(owner) = node.owner.as_mut().filter(|owner| owner.is_serving && has_successor) else {
            return Ok(());
        };
        owner.is_stopping = true;
        owner.engine.end_polls();
        node.is_draining = true;
        self.env.note(&[155, id as u64], || format!("node {id} is to leave"));
        let delay = self.env.rng.between(2_000, 6_000);
        self.env.after(delay, SimEvent::Cluster(ClusterEvent::Start { node: id }));
        self.step_owner(id)
    }

    fn restart_database(&mut self) -> Result<(), String> {
        let span = self.env.rng.between(50, 3_000);
        self.env.coverage.bump(Covered::DatabaseRestarted);
        self.env.note(&[156, span], || format!("the database is restarted, and back in {span} ms"));
        let mut database = self.database.lock();
        let (now, until) = (self.env.now, self.env.now + span);
        database.down_until = until;
        database.end_sessions();
        database.server_id += 1;
        // What is on its disk goes to the replica.
        let next = database.last().next;
        database.primary().replicated = next;
        drop(database);
        self.nodes.iter_mut().for_each(|node| node.silences.add(now, until));
        self.audit_up_to(next)
    }

    /// A replica becomes the primary.
    fn fail_over(&mut self) -> Result<(), String> {
        let now = self.env.now;
        let lost = self.env.rng.between(0, self.config.max_lost) as usize;
        let lingers = self.config.is_synchronous && self.env.rng.chance(500);
        let lingers_until = if lingers { now + self.env.rng.between(500, 9_000) } else { now };
        let owner = self.nodes.iter().find(|node| node.is_serving()).map(|node| node.id);
        let left_behind = owner.filter(|_| lingers && self.env.rng.chance(700));
        let pause = self.env.rng.between(0, 1_500);
        let mut database = self.database.lock();
        let before = database.last();
        let hot_before = database.hot_nodes();
        let end = database.fail_over(lost, lingers_until);
        let hot = database.hot_nodes();
        for id in hot_before.difference(&hot) {
            self.nodes[*id].unknown_since.get_or_insert(now);
        }
        if !lingers {
            database.end_sessions();
        }
        database.left_behind = left_behind.map(|id| (id, lingers_until));
        if let Some(id) = left_behind {
            self.nodes[id].silences.add(now, lingers_until);
        }
        database.down_until = database.down_until.max(now + pause);
        self.nodes.iter_mut().for_each(|node| node.silences.add(now, database.down_until));
        database.snapshots.retain(|(info, _)| info.end < end.next);
        let names_owner = database.members.owner.is_some();
        drop(database);
        self.env.coverage.bump(Covered::FailedOver);
        if end != before {
            self.env.coverage.bump(Covered::FailoverLost);
        }
        self.env.note(&[157, end.next.0, before.next.0], || {
            format!("a failover leaves what is before {} of {}", end.next, before.next)
        });
        self.env.auditor.read(&Entry::Undone { next: end.next, link: end.link, names_owner })
    }
}
