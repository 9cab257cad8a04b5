//! A standby: looks at the database, reads what it lacks, and takes over when the owner is gone.

use cluster::{Applied, FailureDetector, Suspicion, ToRead};
use coordinator::Standby;
use ledger::postgres::{Error as TableError, Observed, Standing};
use ledger::{ErrorKind, RecoveryError};

use super::message::Message;
use super::reader::NodeReader;
use super::world::ClusterWorld;
use super::{ClusterEvent, NodeId};
use crate::env::SimEvent;
use auditor::Covered;
use auditor::history::Entry;
use authority::Position;

impl ClusterWorld<'_> {
    /// Plans the next look, unless an earlier one is planned.
    pub(super) fn look_at(&mut self, id: NodeId, time: u64) {
        let node = &mut self.nodes[id];
        if time < node.next_look {
            node.next_look = time;
            let life = node.life;
            self.env.at(time, SimEvent::Cluster(ClusterEvent::Look { node: id, life, planned: time }));
        }
    }

    /// One look at the ledger and its owner.
    pub(super) fn look(&mut self, id: NodeId, planned: u64) -> Result<(), String> {
        if self.nodes[id].next_look != planned {
            return Ok(());
        }
        self.nodes[id].next_look = u64::MAX;
        if self.nodes[id].owner.is_some() {
            return Ok(());
        }
        if self.nodes[id].taking_over.is_some() {
            // As in production, it only shows that it lives.
            self.observe(id);
            self.look_at(id, self.env.now + 500);
            return Ok(());
        }
        let mut is_locked = false;
        match self.observe(id) {
            None => self.nodes[id].detector.restart(),
            Some(observed) => {
                self.follow_route(id, &observed)?;
                if !self.nodes[id].is_forked && !self.nodes[id].is_draining {
                    self.catch_up(id, &observed)?;
                    self.nodes[id].is_hot = self.nodes[id].standby.is_some();
                    let why = self.suspects(id, &observed);
                    if let Some(why) = why
                        && self.goes_first(id, &observed, why)
                    {
                        self.look_at(id, self.env.now + 500);
                        return self.take_over(id, why, observed.is_locked);
                    }
                    is_locked = observed.is_locked;
                }
            }
        }
        let (now, _) = self.now(id);
        let node = &self.nodes[id];
        let pause = node.detector.pause(node.stream().fed_by.is_some(), is_locked, now);
        self.look_at(id, self.env.now + pause.as_millis() as u64);
        Ok(())
    }

    /// Sends requests to the owner that has announced itself.
    fn follow_route(&mut self, id: NodeId, observed: &Observed) -> Result<(), String> {
        let owner = self.database.lock().members.owner;
        let Some(owner) = owner.filter(|owner| owner.node != id && observed.owner.is_some()) else {
            return Ok(());
        };
        let route = Some((owner.epoch, owner.node));
        let node = &mut self.nodes[id];
        // As in production: a failover can undo the row of an owner that lives.
        let is_undone = |(epoch, _)| epoch > owner.epoch && node.stream().fed_by == Some(epoch);
        if node.route == route || node.route.is_some_and(is_undone) {
            return Ok(());
        }
        node.route = route;
        node.kept.stream_ended(false);
        node.stream_seen = node.stream();
        self.env.note(&[120, id as u64, owner.epoch], || {
            format!("node {id} forwards to node {} at epoch {}", owner.node, owner.epoch)
        });
        // The stream of the owner before is given up, as it is.
        if let Some((stream, peer)) = self.nodes[id].incoming.take() {
            self.send(id, peer, Message::StreamEnd { stream });
        }
        self.route_changed(id)
    }

    /// Reads what the standby lacks.
    fn catch_up(&mut self, id: NodeId, observed: &Observed) -> Result<(), String> {
        let node = &mut self.nodes[id];
        let held = node.kept.end().map(|end| end.next);
        let is_fed = node.stream().fed_by.is_some();
        match FailureDetector::to_read(node.standby.as_ref(), observed, held, is_fed) {
            ToRead::Comparison => {
                return self.check_loss(id);
            }
            ToRead::Nothing => {}
            ToRead::Records => {
                let reader =
                    NodeReader { database: self.database.clone(), node: id, kept: node.kept.clone() };
                let read = match &mut node.standby {
                    Some(standby) => standby.catch_up(&reader).map(|_| ()),
                    None => Standby::open(&reader).map(|standby| node.standby = Some(standby)),
                };
                self.note_reads()?;
                if let Err(error) = read {
                    return self.failed_to_read(id, &error);
                }
                self.check_applied(id)?;
            }
        }
        self.ask_for_stream(id)
    }

    /// The database ends before what the standby has applied.
    fn check_loss(&mut self, id: NodeId) -> Result<(), String> {
        let node = &self.nodes[id];
        let Some((from, limit)) = node.kept.compared() else { return Ok(()) };
        let database = self.database.lock();
        let stored = database.places(database.current(), from, limit);
        drop(database);
        match node.kept.standing(&stored) {
            Standing::Forked { at } => return self.refuse(id, at),
            Standing::Behind => self.env.coverage.bump(Covered::StandbyAhead),
            Standing::Whole => {}
        }
        Ok(())
    }

    /// What a standby does that cannot read.
    pub(super) fn failed_to_read(&mut self, id: NodeId, error: &RecoveryError) -> Result<(), String> {
        let kind = match error {
            RecoveryError::Ledger(cause) => cause.kind(),
            other => return Err(format!("node {id} cannot follow the ledger: {other}")),
        };
        match kind {
            ErrorKind::Forked => {
                let at = match error {
                    RecoveryError::Ledger(cause) => match cause.downcast_ref() {
                        Some(TableError::Forked(at)) => *at,
                        _ => Position::ZERO,
                    },
                    _ => Position::ZERO,
                };
                self.refuse(id, at)
            }
            ErrorKind::Unavailable => Ok(()),
            ErrorKind::Trimmed => {
                self.env.coverage.bump(Covered::StandbyTrimmed);
                self.nodes[id].kept.clear();
                self.nodes[id].standby = None;
                self.env.auditor.read(&Entry::Forgot { node: id as u64, own_alone: false })
            }
            _ => Err(format!("node {id} cannot follow the ledger: {error}")),
        }
    }

    /// The database has another history than this node, which owns nothing any more.
    pub(super) fn refuse(&mut self, id: NodeId, at: Position) -> Result<(), String> {
        self.env.coverage.bump(Covered::ForkRefused);
        self.env.note(&[121, id as u64, at.0], || format!("node {id} refuses the history from {at} on"));
        self.env.auditor.read(&Entry::Refused { node: id as u64, at })?;
        let node = &mut self.nodes[id];
        (node.is_forked, node.is_hot) = (true, false);
        node.standby = None;
        node.kept.clear();
        node.stream_seen = node.stream();
        node.incoming = None;
        self.env.auditor.read(&Entry::Forgot { node: id as u64, own_alone: false })
    }

    fn suspects(&mut self, id: NodeId, observed: &Observed) -> Option<Suspicion> {
        let now = self.now(id);
        let node = &mut self.nodes[id];
        let applied = node.standby.as_ref().and_then(Applied::by);
        let was_notified = std::mem::take(&mut node.was_notified);
        node.standby.as_ref()?;
        node.detector.looked(observed, applied, was_notified, now)
    }

    /// What a standby has applied must be durable.
    pub(super) fn check_applied(&mut self, id: NodeId) -> Result<(), String> {
        let Some(next) = self.nodes[id].standby.as_ref().map(Standby::next) else { return Ok(()) };
        self.env.auditor.read(&Entry::Followed { node: id as u64, next })
    }

    /// The auditor sees what nodes have read.
    pub(super) fn note_reads(&mut self) -> Result<(), String> {
        let (reads, now) = (std::mem::take(&mut self.database.lock().reads), self.env.now);
        reads.into_iter().try_for_each(|(node, place)| {
            self.env.auditor.read(&Entry::Read { node: node as u64, place, now })
        })
    }
}
