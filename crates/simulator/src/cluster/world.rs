//! The history of a cluster from its beginning to its end: a phase with faults, then a phase without in which everything must
//! finish.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use authority::{Position, State, Time};
use ledger::digest::state_digest;
use ledger::postgres::Place;
use ledger::record;

use super::database::Database;
use super::message::Message;
use super::node::Node;
use super::statement::Pipe;
use super::{ClusterBug, ClusterConfig, ClusterEvent, NodeId};
use crate::actors::Cast;
use crate::config::SimConfig;
use crate::env::{Env, SimEvent};
use crate::prng::Prng;
use crate::trace::Trace;
use auditor::history::Entry;
use auditor::{Auditor, Coverage, Covered, Rules};

/// Virtual time in which everything must have finished once the faults are over.
const CALM_MS: u64 = 4 * 60 * 60 * 1_000;
/// No history needs more events than this; one that does runs in a circle.
const MAX_EVENTS: u64 = 2_000_000;
/// So long after a loss, without faults, every node has seen it.
const NOTICE_MS: u64 = 15_000;
/// After everything has ended, standbys catch up for this long, and longer if the owner is busy.
const SETTLE_MS: u64 = 5_000;
const MAX_SETTLE_MS: u64 = 60_000;
/// After so long without faults an operator restarts the nodes that refuse.
const OPERATOR_MS: u64 = 40_000;

/// A node that knows of records which are lost.
pub(super) struct Refusal {
    pub node: NodeId,
    pub life: u64,
    pub from: Position,
    pub place: Place,
    /// Since when the node can see what took their place: it ran, and history was not trimmed yet.
    pub can_see_since: Option<u64>,
}

pub(crate) struct ClusterWorld<'a> {
    pub(super) env: Env<'a>,
    pub(super) config: ClusterConfig,
    pub(super) bug: Option<ClusterBug>,
    pub(super) nodes: Vec<Node>,
    pub(super) database: Database,
    pub(super) pipe: Rc<RefCell<Pipe>>,
    /// Until when two nodes cannot reach each other.
    pub(super) cut_links: BTreeMap<(NodeId, NodeId), u64>,
    /// Nodes that will notice that their connection with another one is lost, and when the last message was.
    pub(super) losses_planned: BTreeMap<(NodeId, NodeId), u64>,
    /// The database executes nothing before this time.
    pub(super) stalled_until: u64,
    pub(super) last_stream: u64,
    /// Every batch that was durable, by position.
    pub(super) audited: BTreeMap<Position, Place>,
    pub(super) epochs: BTreeMap<Position, u64>,
    pub(super) audited_next: Position,
    /// Every record that is durable, from position 1.
    pub(super) records: Vec<Vec<u8>>,
    /// The nodes that know of records which are lost.
    pub(super) must_refuse: Vec<Refusal>,
    /// Inserts whose answer was lost, and whether the batch was stored.
    pub(super) unanswered: BTreeMap<(NodeId, Position), bool>,
    /// Statements whose answer waits for the replica of this server.
    pub(super) waits_for_replica: BTreeMap<u64, usize>,
    cast: Cast,
    /// When the last message from one node to another arrives: a connection keeps their order.
    arrivals: BTreeMap<(NodeId, NodeId), u64>,
    begin: (Instant, u64),
}

impl<'a> ClusterWorld<'a> {
    pub(crate) fn new(
        seed: u64,
        (base, config): (&SimConfig, &ClusterConfig),
        bug: Option<ClusterBug>,
        trace: &'a mut Trace,
    ) -> ClusterWorld<'a> {
        let mut rng = Prng::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(2));
        let cast = Cast::new(&mut rng, base);
        let rules = Rules {
            // References to leases that a failover has undone are still out there.
            edge_broken: base.edge_broken || !config.is_synchronous,
            answers_wait_for_standby: config.answers_wait_for_standby,
            ..base.rules()
        };
        let mut auditor = Auditor::new(rules);
        if !config.is_synchronous && config.failovers {
            auditor.entries = Some(Vec::new());
        }
        let skew = |rng: &mut Prng| {
            let ahead = rng.between(0, config.skew_ms) as i64;
            if rng.chance(500) { ahead } else { -ahead }
        };
        let nodes = (0..config.nodes).map(|id| Node::new(id, skew(&mut rng), config)).collect();
        let env = Env::new(rng, base.clone(), auditor, trace);
        let database = Database::new(config.is_synchronous, env.now);
        database.lock().is_link_ignored = bug == Some(ClusterBug::KeyWithoutLink);
        let begin = (Instant::now(), env.now);
        ClusterWorld {
            env,
            config: config.clone(),
            bug,
            nodes,
            database,
            pipe: Rc::default(),
            cut_links: BTreeMap::new(),
            losses_planned: BTreeMap::new(),
            stalled_until: 0,
            last_stream: 0,
            audited: BTreeMap::new(),
            epochs: BTreeMap::new(),
            audited_next: Position(1),
            records: Vec::new(),
            must_refuse: Vec::new(),
            unanswered: BTreeMap::new(),
            waits_for_replica: BTreeMap::new(),
            cast,
            arrivals: BTreeMap::new(),
            begin,
        }
    }

    /// Runs the history; the error says what is wrong with it.
    pub(crate) fn run(mut self) -> Result<Coverage, String> {
        self.live()?;
        let mut coverage = self.env.coverage.clone();
        coverage.add(&self.env.auditor.coverage);
        Ok(coverage)
    }

    fn live(&mut self) -> Result<(), String> {
        for node in 0..self.nodes.len() {
            let delay = self.env.rng.between(0, 600);
            self.env.after(delay, SimEvent::Cluster(ClusterEvent::Start { node }));
        }
        self.cast.begin(&mut self.env);
        self.env.after(1_500, SimEvent::Trouble);
        let end = self.env.now + self.env.config.safety_ms;
        while self.env.now < end {
            self.step()?;
        }
        self.calm()?;
        self.end()
    }

    /// Faults are over: every accepted task must end.
    fn calm(&mut self) -> Result<(), String> {
        self.env.faults = false;
        self.env.note(&[100], || "the faults are over".into());
        let (began, end) = (self.env.now, self.env.now + CALM_MS);
        self.stalled_until = 0;
        self.cut_links.clear();
        let mut database = self.database.lock();
        database.cut_until.clear();
        database.down_until = 0;
        drop(database);
        let mut has_operator = false;
        loop {
            self.step()?;
            if !has_operator && self.env.now > began + OPERATOR_MS {
                has_operator = true;
                self.check_refusals()?;
                for id in 0..self.nodes.len() {
                    if self.nodes[id].is_forked {
                        self.crash(id)?;
                    }
                }
            }
            let is_idle = self
                .nodes
                .iter()
                .any(|node| node.owner.as_ref().is_some_and(|owner| owner.is_serving && owner.is_idle()));
            match self.env.auditor.unfinished() {
                None if is_idle && has_operator => return Ok(()),
                Some(task) if self.env.now >= end => return Err(format!("task {task} never ends")),
                None if self.env.now >= end => return Err("the cluster does not come to rest".into()),
                _ => {}
            }
        }
    }

    /// Every node that knows of lost records must have refused the other history, unless it was restarted since.
    fn check_refusals(&self) -> Result<(), String> {
        let silent = self.must_refuse.iter().find(|refusal| {
            let node = &self.nodes[refusal.node];
            let has_seen_it = refusal.can_see_since.is_some_and(|since| self.env.now > since + NOTICE_MS);
            node.is_up && node.life == refusal.life && !node.is_forked && has_seen_it
        });
        match silent {
            Some(Refusal { node: id, .. }) => {
                Err(format!("node {id} knows of records that are lost, and does not refuse"))
            }
            None => Ok(()),
        }
    }

    /// Judges that every node has what the durable records give.
    fn end(&mut self) -> Result<(), String> {
        let until = self.env.now + SETTLE_MS;
        while self.env.now < until || (self.env.now < until + MAX_SETTLE_MS && !self.is_settled()) {
            self.step()?;
        }
        let mut state = State::new();
        for (index, bytes) in self.records.iter().enumerate() {
            let record = record::decode(bytes).map_err(|error| format!("record {}: {error}", index + 1))?;
            state.apply(record.at, &record.event).map_err(|illegal| illegal.to_string())?;
        }
        let mut compared = 0;
        for node in &mut self.nodes {
            let standby = node.standby.take().map(coordinator::Standby::into_state);
            let owned = node.owner.as_ref().filter(|owner| owner.is_idle()).map(|owner| owner.engine.state());
            for held in standby.as_ref().into_iter().chain(owned) {
                held.check_invariants()?;
                if held.position() == state.position() {
                    compared += 1;
                    let is_same = state_digest(held) == state_digest(&state);
                    if !is_same {
                        return Err(format!("the state of node {} is not what all records give", node.id));
                    }
                }
            }
        }
        if compared == 0 { Err("no node has all records in the end".into()) } else { Ok(()) }
    }

    /// Whether the owner has nothing to do, and everything is durable.
    fn is_settled(&self) -> bool {
        let durable = self.audited_next;
        let owners = self.nodes.iter().filter_map(|node| node.owner.as_ref());
        owners.filter(|owner| owner.is_idle()).any(|owner| owner.engine.state().position().next() == durable)
    }

    /// The time by the clocks of a node.
    pub(super) fn now(&self, id: NodeId) -> (Instant, Time) {
        let (instant, begin) = self.begin;
        let elapsed = Duration::from_millis(self.env.now - begin);
        (instant + elapsed, self.nodes[id].clock(self.env.now))
    }

    /// Sends a message to the process that runs on another node, if there is one.
    pub(super) fn send(&mut self, from: NodeId, to: NodeId, message: Message) {
        let life = self.nodes[to].life;
        self.send_to_life(from, (to, life), message);
    }

    pub(super) fn send_to_life(&mut self, from: NodeId, to: (NodeId, u64), message: Message) {
        let now = self.env.now;
        let is_cut = self.cut_links.get(&(from.min(to.0), from.max(to.0))).is_some_and(|until| now < *until);
        if is_cut && from != to.0 {
            // Both ends notice at last that nothing comes through.
            for (node, peer) in [(from, to.0), (to.0, from)] {
                if self.nodes[node].is_up && self.losses_planned.insert((node, peer), now).is_none() {
                    let delay = self.env.rng.between(0, 5_000);
                    self.lose_link(node, peer, delay);
                }
            }
            return;
        }
        let is_slow = from != to.0 && self.env.strikes(self.config.link_cuts, 20);
        let delay = if is_slow { self.env.rng.between(50, 800) } else { self.env.rng.between(0, 3) };
        let arrival = self.arrivals.entry((from, to.0)).or_default();
        *arrival = (*arrival).max(now + delay);
        let from = (from, self.nodes[from].life);
        self.env.at(*arrival, SimEvent::Cluster(ClusterEvent::Deliver { from, to, message }));
    }

    /// All other nodes look at once.
    pub(super) fn tell_others(&mut self, id: NodeId) {
        for other in 0..self.nodes.len() {
            if other != id && self.nodes[other].is_up && !self.database.lock().is_cut(other) {
                self.nodes[other].was_notified = true;
                let delay = self.env.rng.between(0, 5);
                self.look_at(other, self.env.now + delay);
            }
        }
    }

    /// Notes that a node runs which knows of lost records.
    fn can_see_loss(&mut self, id: NodeId) {
        let database = self.database.lock();
        if !database.is_reachable(id) {
            return;
        }
        let oldest = database.rows().keys().next().copied().unwrap_or_default();
        let now = self.env.now;
        for refusal in self.must_refuse.iter_mut().filter(|refusal| refusal.node == id) {
            if oldest <= refusal.from {
                refusal.can_see_since.get_or_insert(now);
            } else {
                // It was trimmed before the node had the time to look.
                refusal.can_see_since.take_if(|since| now <= *since + NOTICE_MS);
            }
        }
    }

    fn step(&mut self) -> Result<(), String> {
        if self.env.trace.events > MAX_EVENTS {
            return Err("the history does not end".into());
        }
        let Some(event) = self.env.next() else { return Err("nothing is going to happen".into()) };
        self.database.lock().now = self.env.now;
        match event {
            SimEvent::Arrive { ticket, request } => self.arrive(ticket, request),
            SimEvent::Answer { ticket, reply } => self.cast.answered(ticket, reply, &mut self.env),
            SimEvent::GiveUp { ticket } => self.cast.give_up(ticket, &mut self.env),
            SimEvent::Act { actor, timer } => self.cast.wake(actor, timer, &mut self.env),
            SimEvent::Cluster(event) => self.event(event),
            SimEvent::Trouble => self.trouble(),
            SimEvent::Host(_) => Ok(()),
        }
    }

    /// The process that sees an event, if there is one.
    fn seen_by(event: &ClusterEvent) -> Option<(NodeId, Option<u64>)> {
        Some(match event {
            ClusterEvent::Start { node } => (*node, None),
            ClusterEvent::Look { node, life, .. }
            | ClusterEvent::Wake { node, life, .. }
            | ClusterEvent::Beat { node, life }
            | ClusterEvent::Answer { node, life, .. }
            | ClusterEvent::LinkLost { node, life, .. }
            | ClusterEvent::Edge { node, life } => (*node, Some(*life)),
            ClusterEvent::Deliver { to: (node, life), .. } => (*node, Some(*life)),
            ClusterEvent::Execute { .. }
            | ClusterEvent::Replicated { .. }
            | ClusterEvent::BeatArrives { .. } => return None,
        })
    }

    fn event(&mut self, event: ClusterEvent) -> Result<(), String> {
        if let Some((id, life)) = Self::seen_by(&event) {
            let node = &self.nodes[id];
            if life.is_some_and(|life| life != node.life || !node.is_up) {
                return Ok(());
            }
            if self.env.now < node.suspended_until {
                self.env.at(node.suspended_until, SimEvent::Cluster(event));
                return Ok(());
            }
            self.can_see_loss(id);
        }
        match event {
            ClusterEvent::Start { node } => self.start(node),
            ClusterEvent::Look { node, planned, .. } => self.look(node, planned),
            ClusterEvent::Wake { node, planned, .. } => self.wake(node, planned),
            ClusterEvent::Beat { node, .. } => self.beat(node),
            ClusterEvent::BeatArrives { node, life, epoch, time_ms } => {
                self.beat_arrives((node, life), epoch, time_ms);
                Ok(())
            }
            ClusterEvent::Execute { sent, is_awaited } => self.execute(sent, is_awaited),
            ClusterEvent::Answer { id, node, outcome, .. } => self.answered(id, node, outcome),
            ClusterEvent::Replicated { primary, next } => self.replicated(primary, next),
            ClusterEvent::Deliver { from, to, message } => self.deliver_message(from, to.0, message),
            ClusterEvent::LinkLost { node, peer, lost_at, .. } => {
                let lost_at = self.losses_planned.remove(&(node, peer)).unwrap_or(0).max(lost_at);
                self.env.note(&[102, node as u64, peer as u64], || {
                    format!("node {node} has lost its connection with node {peer}")
                });
                self.streams_lost(node, peer, lost_at)?;
                self.calls_lost(node, peer)
            }
            ClusterEvent::Edge { node, .. } => self.look_at_calls(node),
        }
    }

    fn deliver_message(&mut self, from: (NodeId, u64), id: NodeId, message: Message) -> Result<(), String> {
        if self.nodes[from.0].life != from.1 && from.0 != id {
            // The connection is gone with the process.
            return Ok(());
        }
        match message {
            Message::Call { attempt, epoch, request, ticket } => {
                self.accept(id, from, (attempt, epoch), request, ticket)
            }
            Message::Reply { attempt, epoch, reply } => self.replied(id, attempt, epoch, reply),
            Message::Subscribe { stream, epoch, after } => {
                self.subscribed(id, from.0, stream, (epoch, after))
            }
            Message::Batch { stream, epoch, before, row } => {
                self.env.coverage.bump(Covered::FedStandby);
                self.batch_received(id, stream, epoch, (before, row))
            }
            Message::Durable { stream, epoch, next, time } => {
                self.durable_received(id, stream, epoch, (next, time))
            }
            Message::StreamEnd { stream } => self.stream_ended(id, stream),
            Message::Received { stream, next } => self.receipt(id, stream, next),
        }
    }

    fn start(&mut self, id: NodeId) -> Result<(), String> {
        if self.nodes[id].is_up && !self.nodes[id].is_draining {
            return Ok(());
        }
        if self.nodes[id].is_up {
            // A node that leaves is replaced by another process.
            let life = self.nodes[id].life;
            self.database.lock().unlock(id, life);
        }
        self.nodes[id].start(&self.config);
        self.nodes[id].unknown_since = Some(self.env.now);
        self.losses_planned.retain(|(node, _), _| *node != id);
        let life = self.nodes[id].life;
        self.env.note(&[101, id as u64, life], || format!("node {id} is started"));
        self.env.auditor.read(&Entry::Forgot { node: id as u64, own_alone: false })?;
        self.look_at(id, self.env.now);
        Ok(())
    }
}
