//! An owner: drives the engine by the same rules as the production driver, with the production append protocol.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use authority::command::TakeOver;
use authority::{Command, Position, Time};
use coordinator::engine::Engine;
use coordinator::{Read, Request, Standby, first_time};
use ledger::postgres::{Appender, Place};
use ledger::{AppendError, Batch, Refusal, SnapshotInfo};

use super::message::{Attempt, CallTicket, Message};
use super::statement::Table;
use super::world::ClusterWorld;
use super::{ClusterBug, ClusterEvent, NodeId};
use crate::config::queue_defaults;
use crate::env::{NOBODY, SimEvent, Ticket, clock};
use auditor::Covered;
use auditor::history::Entry;

/// As in production: a tick stays this far behind the clock.
const TICK_LAG_MS: u64 = 2;
/// As in production: the longest time without a look at the clock.
const MAX_SLEEP_MS: u64 = 5_000;
/// As in production: a larger gap between the clock and the newest record holds back the purge by age.
const PLAUSIBLE_GAP_MS: u64 = 24 * 60 * 60 * 1_000;
const PURGE_HOLD_MS: u64 = 60 * 60 * 1_000;

type Appending = Pin<Box<dyn Future<Output = (Appender<Table>, Result<(), AppendError>)>>>;

pub(crate) struct Owner {
    pub engine: Engine<CallTicket>,
    pub epoch: u64,
    /// The takeover is durable.
    pub is_serving: bool,
    /// The ledger is to be handed over.
    pub is_stopping: bool,
    base: Time,
    zero: u64,
    appender: Option<Appender<Table>>,
    /// The last batch that it knows to be durable.
    pub last_durable: Place,
    flight: Option<(Appending, Option<Batch>)>,
    inbox: VecDeque<(CallTicket, Request, Time)>,
    decided_up_to: Time,
    next_wake: u64,
    snapshot_at: Position,
    /// The server that was recorded as complete.
    pub recorded_on: Option<u64>,
}

impl Owner {
    pub(crate) fn now(&self, now: u64) -> Time {
        clock(self.base, self.zero, now)
    }

    /// The time up to which every request received is known to have been decided.
    fn horizon(&self, now: u64) -> Time {
        match self.inbox.is_empty() {
            true => Time(self.now(now).0.saturating_sub(TICK_LAG_MS)),
            false => self.decided_up_to,
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.flight.is_none() && self.inbox.is_empty() && self.engine.batch_bytes() == 0
    }

    /// Begins an append or a confirmation if one is due and none is under way.
    fn begin(&mut self) {
        let Some(mut appender) = self.appender.take() else { return };
        if let Some(batch) = self.engine.take_batch() {
            match appender.prepare(&batch) {
                Ok(prepared) => {
                    let append = async move {
                        let appended = appender.append(prepared).await;
                        (appender, appended)
                    };
                    self.flight = Some((Box::pin(append), Some(batch)));
                }
                Err(error) => self.flight = Some((Box::pin(async { (appender, Err(error)) }), Some(batch))),
            }
        } else if self.engine.begin_confirmation() {
            let confirm = async move {
                let confirmed = appender.confirm().await;
                (appender, confirmed)
            };
            self.flight = Some((Box::pin(confirm), None));
        } else {
            self.appender = Some(appender);
        }
    }

    /// What has come of the append or confirmation under way.
    fn poll(&mut self) -> Option<(Option<Batch>, Result<(), AppendError>)> {
        let (future, _) = self.flight.as_mut()?;
        let (appender, result) = poll_once(future.as_mut())?;
        self.appender = Some(appender);
        let (_, batch) = self.flight.take()?;
        Some((batch, result))
    }
}

/// Where an answer goes that nobody waits for.
fn nobody(node: NodeId) -> CallTicket {
    let ticket =
        Ticket { ask: 0, actor: NOBODY, call: 0, gone: Default::default(), settled: Default::default() };
    CallTicket { ask: 0, edge: (node, 0), attempt: Attempt { call: 0, number: 0 }, ticket }
}

/// Polls a future once. The world knows by itself when to poll again.
pub(crate) fn poll_once<F: Future + ?Sized>(future: Pin<&mut F>) -> Option<F::Output> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl ClusterWorld<'_> {
    /// A standby at the end of the ledger begins to own it: records that it does, and expires what ran out meanwhile.
    pub(super) fn own(
        &mut self,
        id: NodeId,
        (standby, began_at): (Standby, u64),
        appender: Appender<Table>,
    ) -> Result<(), String> {
        let (env, node) = (&mut self.env, &mut self.nodes[id]);
        let wall = node.clock(env.now);
        let time = node.detector.time().after(&standby, began_at, wall);
        let mut state = standby.into_state();
        state.set_queue_defaults(queue_defaults());
        state.set_max_bytes(env.config.features.max_state_bytes);
        state.set_max_final_bytes(env.config.features.max_final_bytes);
        let base = match time {
            Some(time) => time.max(state.time()),
            None => first_time(state.time(), wall),
        };
        if wall.since_ms(base).max(base.since_ms(wall)) > 1_000 {
            env.coverage.bump(Covered::SkewedTakeover);
        }
        let is_plausible = state.is_empty() || base.since_ms(state.time()) <= PLAUSIBLE_GAP_MS;
        let hold = if is_plausible { Time::ZERO } else { base.plus_ms(PURGE_HOLD_MS) };
        let snapshot_at = state.position();
        let mut engine = Engine::new(state, hold);
        engine.registry().set_heartbeat_timeout_ms(env.config.heartbeat_timeout_ms);
        engine.confirm_answers();
        let name = format!("node-{id}");
        let take_over = TakeOver { node: name.as_str().into(), audit_head: None };
        engine.receive(Request::decide(Command::TakeOver(take_over)), base, nobody(id));
        engine.tick(base);
        let epoch = engine.state().owner().map_or(0, |owner| owner.epoch);
        env.note(&[110, id as u64, epoch, base.0], || format!("node {id} begins epoch {epoch} at {base}"));
        node.owner = Some(Owner {
            engine,
            epoch,
            is_serving: false,
            is_stopping: false,
            base,
            zero: env.now,
            flight: None,
            inbox: VecDeque::new(),
            decided_up_to: Time::ZERO,
            next_wake: u64::MAX,
            snapshot_at,
            recorded_on: None,
            last_durable: appender.last(),
            appender: Some(appender),
        });
        self.step_owner(id)
    }

    /// A request for the owner at this epoch.
    pub(super) fn accept(
        &mut self,
        id: NodeId,
        from: (NodeId, u64),
        (attempt, epoch): (Attempt, u64),
        request: Request,
        ticket: Ticket,
    ) -> Result<(), String> {
        let now = self.env.now;
        let owner = self.nodes[id].owner.as_mut();
        let Some(owner) =
            owner.filter(|owner| owner.is_serving && !owner.is_stopping && owner.epoch >= epoch)
        else {
            self.send_to_life(id, from, Message::Reply { attempt, epoch, reply: None });
            return Ok(());
        };
        let at = owner.now(now);
        // What an owner hears that was replaced explains no record.
        if !self.env.auditor.is_owner_replaced(id as u64, owner.epoch) {
            self.env.auditor.read(&Entry::Received { ask: ticket.ask, at })?;
        }
        let request = match request {
            Request::Poll { lease, until } => Request::Poll { lease, until: at.plus_ms(until.0) },
            Request::Wait { scope, task, condition, until } => {
                Request::Wait { scope, task, condition, until: at.plus_ms(until.0) }
            }
            other => other,
        };
        let ask = ticket.ask;
        self.env.note(&[111, ask, id as u64], || format!("{ask} is received by node {id} at {at}"));
        owner.inbox.push_back((CallTicket { ask, edge: from, attempt, ticket }, request, at));
        let delay = self.env.rng.between(0, 2);
        self.wake_at(id, now + delay);
        Ok(())
    }

    /// As in production: a read that nobody asked for, which is confirmed.
    pub(super) fn append_again(&mut self, id: NodeId) -> Result<(), String> {
        let now = self.env.now;
        let Some(owner) = &mut self.nodes[id].owner else { return Ok(()) };
        let at = owner.now(now);
        owner.engine.receive(Request::Read(Read::Status), at, nobody(id));
        self.step_owner(id)
    }

    /// One turn of the driver's loop.
    pub(super) fn wake(&mut self, id: NodeId, planned: u64) -> Result<(), String> {
        let take = self.env.rng.between(1, 8);
        let Some(owner) = &mut self.nodes[id].owner else { return Ok(()) };
        if owner.next_wake != planned {
            return Ok(());
        }
        owner.next_wake = u64::MAX;
        for _ in 0..take {
            if !owner.engine.takes_requests() {
                break;
            }
            let Some((ticket, request, received_at)) = owner.inbox.pop_front() else { break };
            owner.decided_up_to = owner.decided_up_to.max(received_at);
            owner.engine.receive(request, received_at, ticket);
        }
        self.step_owner(id)
    }

    /// What follows: ticks, answers, batches, confirmations, a handover.
    pub(super) fn step_owner(&mut self, id: NodeId) -> Result<(), String> {
        loop {
            let now = self.env.now;
            let Some(owner) = &mut self.nodes[id].owner else { return Ok(()) };
            let horizon = owner.horizon(now);
            if owner.is_serving && owner.engine.next_due() <= horizon {
                owner.engine.tick(horizon);
            }
            self.deliver(id)?;
            let Some(owner) = &mut self.nodes[id].owner else { return Ok(()) };
            if owner.flight.is_none() {
                owner.begin();
            }
            let Some((batch, result)) = owner.poll() else { break };
            self.returned(id, batch, result)?;
        }
        self.dispatch()?;
        self.pump(id)?;
        self.take_snapshot(id);
        self.hand_over(id)?;
        let now = self.env.now;
        let Some(owner) = &self.nodes[id].owner else { return Ok(()) };
        let due = owner.engine.next_due().plus_ms(TICK_LAG_MS).since_ms(owner.now(now)).min(MAX_SLEEP_MS);
        let pause = if owner.inbox.is_empty() { due.max(1) } else { 1 };
        self.wake_at(id, now + pause);
        Ok(())
    }

    fn returned(
        &mut self,
        id: NodeId,
        batch: Option<Batch>,
        result: Result<(), AppendError>,
    ) -> Result<(), String> {
        let result = match result {
            Err(AppendError::Refused(Refusal::Fenced { .. }))
                if self.bug == Some(ClusterBug::FencedIgnored) =>
            {
                Ok(())
            }
            result => result,
        };
        let Some(owner) = &mut self.nodes[id].owner else { return Ok(()) };
        match (result, batch) {
            (Ok(()), Some(batch)) => {
                let (first, next, is_serving) = (batch.first(), batch.next(), owner.is_serving);
                owner.engine.batch_durable(batch);
                owner.last_durable = owner.appender.as_ref().map_or(owner.last_durable, Appender::last);
                self.env.auditor.read(&Entry::Appended { node: id as u64, next, is_first: !is_serving })?;
                if let Some(was_stored) = self.unanswered.remove(&(id, first)) {
                    let resolved = if was_stored { Covered::ResolvedDurable } else { Covered::ResolvedFree };
                    self.env.coverage.bump(resolved);
                }
                self.begin_to_serve(id)
            }
            (Ok(()), None) => {
                owner.engine.confirmed();
                Ok(())
            }
            (Err(AppendError::Refused(Refusal::Fenced { .. })), _) => {
                self.env.coverage.bump(Covered::Fenced);
                let epoch = owner.epoch;
                self.env.note(&[112, id as u64, epoch], || format!("node {id} is fenced at epoch {epoch}"));
                self.env.auditor.read(&Entry::GaveUp { node: id as u64, epoch })?;
                self.stop_owning(id)
            }
            (Err(AppendError::Refused(Refusal::Forked { at })), _) => {
                let is_followed = self.bug == Some(ClusterBug::ForkFollowed);
                self.env.note(&[113, id as u64, at.0], || format!("node {id} finds a fork at {at}"));
                if !is_followed {
                    self.refuse(id, at)?;
                }
                self.stop_owning(id)
            }
            (Err(error), _) => Err(format!("node {id} cannot append: {error}")),
        }
    }

    /// The first batch of an owner is durable.
    fn begin_to_serve(&mut self, id: NodeId) -> Result<(), String> {
        let now = self.env.now;
        let Some(owner) = &mut self.nodes[id].owner else { return Ok(()) };
        if std::mem::replace(&mut owner.is_serving, true) {
            return Ok(());
        }
        let (epoch, time) = (owner.epoch, owner.now(now));
        self.env.coverage.bump(Covered::TookOver);
        self.env.note(&[114, id as u64, epoch], || format!("node {id} serves at epoch {epoch}"));
        self.env.auditor.read(&Entry::Clock { epoch, now, time })?;
        if self.env.auditor.newest_epoch() <= epoch {
            self.env.auditor.read(&Entry::Started)?;
        }
        let node = &mut self.nodes[id];
        node.feed.begin_to_serve();
        (node.route, node.is_hot, node.has_owned) = (Some((epoch, id)), false, true);
        node.detector.owns();
        node.kept.clear();
        node.stream_seen = node.stream();
        if let Some((stream, peer)) = node.incoming.take() {
            self.send(id, peer, Message::StreamEnd { stream });
        }
        let life = self.nodes[id].life;
        let mut database = self.database.lock();
        if database.has_members(id) {
            // The lock of an owner that was silent is taken from it.
            database.lock = Some((id, life));
        }
        drop(database);
        self.announce_owner(id, epoch, time)?;
        self.env.after(500, SimEvent::Cluster(ClusterEvent::Beat { node: id, life }));
        self.route_changed(id)
    }

    /// Ends the ownership: whoever waits gets no answer from this owner.
    pub(super) fn stop_owning(&mut self, id: NodeId) -> Result<(), String> {
        let Some(mut owner) = self.nodes[id].owner.take() else { return Ok(()) };
        let mut waiting = owner.engine.take_all_waiting();
        waiting.sort_by_key(|(ticket, _)| ticket.ask);
        let epoch = owner.epoch;
        for (ticket, reply) in waiting {
            self.reply(id, &ticket, epoch, Some(reply));
        }
        for (ticket, ..) in std::mem::take(&mut owner.inbox) {
            self.reply(id, &ticket, epoch, None);
        }
        let own_alone = !owner.is_serving;
        drop(owner);
        self.env.auditor.read(&Entry::Forgot { node: id as u64, own_alone })?;
        let life = self.nodes[id].life;
        let node = &mut self.nodes[id];
        node.route = node.route.filter(|(of, _)| *of != epoch);
        node.was_notified = false;
        let mut database = self.database.lock();
        if database.is_reachable(id) {
            database.unlock(id, life);
        }
        drop(database);
        self.pump(id)?;
        self.nodes[id].detector.restart();
        self.look_at(id, self.env.now + 1);
        Ok(())
    }

    fn deliver(&mut self, id: NodeId) -> Result<(), String> {
        let Some(owner) = &mut self.nodes[id].owner else { return Ok(()) };
        let epoch = owner.epoch;
        let answers: Vec<_> = owner.engine.take_answers().collect();
        for (ticket, reply) in answers {
            self.reply(id, &ticket, epoch, Some(reply));
        }
        Ok(())
    }

    fn reply(&mut self, id: NodeId, ticket: &CallTicket, epoch: u64, reply: Option<coordinator::Reply>) {
        if ticket.ticket.actor != NOBODY {
            let attempt = ticket.attempt;
            self.send_to_life(id, ticket.edge, Message::Reply { attempt, epoch, reply });
        }
    }

    /// Stores a snapshot when enough was recorded, which trims the history before.
    fn take_snapshot(&mut self, id: NodeId) {
        let after = self.config.snapshot_after;
        let Some(owner) = &mut self.nodes[id].owner else { return };
        let (durable, position) = (owner.engine.durable(), owner.engine.state().position());
        if !owner.is_serving || durable != position || position.0 < owner.snapshot_at.0 + after {
            return;
        }
        let mut database = self.database.lock();
        // A server that loses commits loses the snapshots of them too, so none may be ahead.
        if !database.is_reachable(id) || database.last().next <= position {
            return;
        }
        owner.snapshot_at = position;
        let (begin, block) = owner.engine.begin_snapshot();
        let mut blocks = vec![block];
        while let Some(slice) = owner.engine.snapshot_slice() {
            blocks.push(slice.block);
        }
        let info = SnapshotInfo { begin, end: position, name: format!("snapshot {begin}") };
        database.add_snapshot(info, blocks);
        self.env.coverage.bump(Covered::SnapshotOfOwner);
        self.env.note(&[115, begin.0], || format!("node {id} stores a snapshot at {begin}"));
    }

    /// Gives the ledger to another node, once nothing is left to do.
    fn hand_over(&mut self, id: NodeId) -> Result<(), String> {
        let Some(owner) = &self.nodes[id].owner else { return Ok(()) };
        if !owner.is_stopping || !owner.is_idle() {
            return Ok(());
        }
        self.env.coverage.bump(Covered::HandedOver);
        self.env.note(&[116, id as u64], || format!("node {id} hands over"));
        self.record_server(id);
        self.stop_owning(id)?;
        self.tell_others(id);
        Ok(())
    }

    fn wake_at(&mut self, id: NodeId, time: u64) {
        let life = self.nodes[id].life;
        let Some(owner) = &mut self.nodes[id].owner else { return };
        if time < owner.next_wake {
            owner.next_wake = time;
            self.env.at(time, SimEvent::Cluster(ClusterEvent::Wake { node: id, life, planned: time }));
        }
    }
}
