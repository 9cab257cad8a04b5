//! The streams of owners to their standbys, over connections that may be lost.

use std::future::Future;
use std::pin::{Pin, pin};

use authority::{Position, Time};
use cluster::LOOK_ALARMED;
use ledger::postgres::{BatchRow, Fed, Place, Receipts, Subscription};

use super::NodeId;
use super::message::Message;
use super::owner::poll_once;
use super::world::ClusterWorld;
use auditor::history::Entry;

/// How soon others learn what a standby newly holds.
pub(super) const LOOK_ALARMED_MS: u64 = LOOK_ALARMED.as_millis() as u64;

/// The owner's end of a stream.
pub(crate) struct Outgoing {
    pub to: NodeId,
    since: u64,
    state: State,
    receipts: Option<Receipts>,
}

enum State {
    /// The node does not own the ledger yet, as far as it knows.
    Waiting(Pin<Box<dyn Future<Output = Subscription>>>),
    Open(Subscription),
}

/// What an owner's end does next.
enum Next {
    Send(Fed, u64),
    End,
    Wait,
}

impl Outgoing {
    fn next(&mut self) -> Next {
        if let State::Waiting(subscribing) = &mut self.state {
            let Some(subscription) = poll_once(subscribing.as_mut()) else { return Next::Wait };
            self.receipts = Some(subscription.receipts());
            self.state = State::Open(subscription);
        }
        let State::Open(subscription) = &mut self.state else { return Next::Wait };
        let epoch = subscription.epoch();
        let next = poll_once(pin!(subscription.next()));
        match next {
            Some(Some(fed)) => Next::Send(fed, epoch),
            Some(None) => Next::End,
            None => Next::Wait,
        }
    }
}

impl ClusterWorld<'_> {
    /// A standby has read everything, and asks the owner for its stream if it has none.
    pub(super) fn ask_for_stream(&mut self, id: NodeId) -> Result<(), String> {
        let node = &mut self.nodes[id];
        let (Some((epoch, owner)), Some(after), None) = (node.route, node.kept.end(), node.incoming) else {
            return Ok(());
        };
        if owner == id || node.is_forked || node.is_draining {
            return Ok(());
        }
        self.last_stream += 1;
        let stream = self.last_stream;
        self.env.note(&[160, id as u64, stream], || {
            format!("node {id} asks node {owner} for stream {stream} after {}", after.next)
        });
        (node.incoming, node.incoming_since) = (Some((stream, owner)), self.env.now);
        self.send(id, owner, Message::Subscribe { stream, epoch, after });
        Ok(())
    }

    pub(super) fn subscribed(
        &mut self,
        id: NodeId,
        to: NodeId,
        stream: u64,
        (epoch, after): (u64, Place),
    ) -> Result<(), String> {
        let feed = self.nodes[id].feed.clone();
        let name = format!("node-{to}");
        let subscribing = Box::pin(async move { feed.subscribe(&name, epoch, after).await });
        let since = self.env.now;
        let outgoing = Outgoing { to, since, state: State::Waiting(subscribing), receipts: None };
        // One connection between two nodes has one stream.
        self.nodes[id].outgoing.retain(|_, other| other.to != to);
        self.nodes[id].outgoing.insert(stream, outgoing);
        self.pump(id)
    }

    /// Sends what an owner has for its standbys.
    pub(super) fn pump(&mut self, id: NodeId) -> Result<(), String> {
        let streams: Vec<u64> = self.nodes[id].outgoing.keys().copied().collect();
        for stream in streams {
            loop {
                let now = self.env.now;
                let Some(outgoing) = self.nodes[id].outgoing.get_mut(&stream) else { break };
                let to = outgoing.to;
                let message = match outgoing.next() {
                    Next::Wait => break,
                    Next::End => {
                        self.nodes[id].outgoing.remove(&stream);
                        Message::StreamEnd { stream }
                    }
                    Next::Send(Fed::Batch(before, row), epoch) => {
                        Message::Batch { stream, epoch, before, row }
                    }
                    Next::Send(Fed::Durable(next), epoch) => {
                        let owner = self.nodes[id].owner.as_ref();
                        let Some(owner) = owner.filter(|owner| owner.is_serving) else { continue };
                        Message::Durable { stream, epoch, next, time: owner.now(now) }
                    }
                };
                self.send(id, to, message);
            }
        }
        Ok(())
    }

    pub(super) fn batch_received(
        &mut self,
        id: NodeId,
        stream: u64,
        epoch: u64,
        (before, row): (Place, BatchRow),
    ) -> Result<(), String> {
        let node = &mut self.nodes[id];
        let Some((_, owner)) = node.incoming.filter(|(known, _)| *known == stream) else { return Ok(()) };
        let fed = Entry::Fed { node: id as u64, before, place: row.place, now: self.env.now };
        self.env.auditor.read(&fed)?;
        if node.kept.receive(epoch, before, row) {
            let Some(end) = node.kept.end() else { return Ok(()) };
            self.send(id, owner, Message::Received { stream, next: end.next });
        } else {
            node.incoming = None;
            node.kept.stream_ended(false);
            self.send(id, owner, Message::StreamEnd { stream });
        }
        self.stream_changed(id)
    }

    pub(super) fn durable_received(
        &mut self,
        id: NodeId,
        stream: u64,
        epoch: u64,
        (next, time): (Position, Time),
    ) -> Result<(), String> {
        let node = &mut self.nodes[id];
        if node.incoming.is_none_or(|(known, _)| known != stream) {
            return Ok(());
        }
        node.kept.durable(epoch, next, time);
        self.env.auditor.read(&Entry::LearnedDurable { node: id as u64, next })?;
        self.stream_changed(id)
    }

    /// A stream is over at its other end.
    pub(super) fn stream_ended(&mut self, id: NodeId, stream: u64) -> Result<(), String> {
        self.env.note(&[161, id as u64, stream], || format!("stream {stream} ends at node {id}"));
        let node = &mut self.nodes[id];
        node.outgoing.remove(&stream);
        if node.incoming.is_some_and(|(known, _)| known == stream) {
            node.incoming = None;
            node.kept.stream_ended(false);
            self.stream_changed(id)?;
        }
        // A writer that waits for a receipt sees it.
        self.step_owner(id)
    }

    pub(super) fn receipt(&mut self, id: NodeId, stream: u64, next: Position) -> Result<(), String> {
        let outgoing = self.nodes[id].outgoing.get(&stream);
        if let Some(receipts) = outgoing.and_then(|outgoing| outgoing.receipts.as_ref()) {
            receipts.received(next);
        }
        self.step_owner(id)
    }

    /// The connections with another node are lost that are older than `lost_at`, and with them their streams.
    pub(super) fn streams_lost(&mut self, id: NodeId, peer: NodeId, lost_at: u64) -> Result<(), String> {
        let node = &mut self.nodes[id];
        node.outgoing.retain(|_, outgoing| outgoing.to != peer || outgoing.since > lost_at);
        if node.incoming.is_some_and(|(_, owner)| owner == peer) && node.incoming_since <= lost_at {
            self.nodes[id].incoming = None;
            self.nodes[id].kept.stream_ended(true);
            self.stream_changed(id)?;
        }
        self.step_owner(id)
    }

    /// What a standby does when something came over its stream, or no more does.
    fn stream_changed(&mut self, id: NodeId) -> Result<(), String> {
        let now = self.now(id);
        let node = &mut self.nodes[id];
        let after = node.stream();
        let before = std::mem::replace(&mut node.stream_seen, after);
        let looks = node.detector.stream_changed(&before, &after, now);
        if let Some(standby) = node.standby.as_mut().filter(|standby| standby.next() < after.durable) {
            let applied = standby.apply_received(&node.kept);
            applied.map_err(|error| format!("node {id} cannot apply what it received: {error}"))?;
        }
        self.check_applied(id)?;
        let node = &self.nodes[id];
        if looks {
            self.look_at(id, self.env.now);
        } else if node.hides_holding() {
            let at = self.env.now.max(node.last_look + LOOK_ALARMED_MS);
            self.look_at(id, at);
        }
        Ok(())
    }
}
