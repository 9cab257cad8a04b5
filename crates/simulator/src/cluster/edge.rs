//! The edge of a node: holds each call until it is answered, and sends it again to the next owner.

use std::collections::BTreeMap;

use authority::{Digest, Time};
use coordinator::{DEFAULT_FAILOVER_WAIT, EARLY_MS, Reply, Request, Unavailable, answer_to_repeat};

use super::message::{Attempt, Message};
use super::world::ClusterWorld;
use super::{ClusterEvent, NodeId};
use crate::env::{SimEvent, Ticket};
use auditor::Covered;
use auditor::history::Entry;

/// How long a call is held without an answer.
const FAILOVER_WAIT_MS: u64 = DEFAULT_FAILOVER_WAIT.as_millis() as u64;

#[derive(Default)]
pub(crate) struct Edge {
    last_call: u64,
    calls: BTreeMap<u64, Held>,
}

struct Held {
    ticket: Ticket,
    request: Request,
    /// Until when a poll or a wait goes on, in true time.
    until: Option<u64>,
    give_up_at: u64,
    attempts: u64,
    /// The epoch that the current attempt was sent to, while it may be answered.
    sent_to: Option<u64>,
}

impl ClusterWorld<'_> {
    /// A request of a client reaches a node.
    pub(super) fn arrive(&mut self, mut ticket: Ticket, request: Request) -> Result<(), String> {
        let up: Vec<NodeId> = self.nodes.iter().filter(|node| node.is_up).map(|node| node.id).collect();
        let Some(&node) = self.env.rng.pick(&up) else { return Ok(()) };
        if self.env.now < self.nodes[node].suspended_until {
            return Ok(());
        }
        let Some(mut request) = self.env.through_the_edge(&mut ticket, request)? else { return Ok(()) };
        let until = match &mut request {
            Request::Poll { until, .. } | Request::Wait { until, .. } => Some(self.env.now + until.0),
            _ => None,
        };
        let life = self.nodes[node].life;
        let edge = &mut self.nodes[node].edge;
        edge.last_call += 1;
        let call = edge.last_call;
        if let Request::Poll { lease, .. } = &mut request
            && lease.request.is_none()
        {
            let mut digest = [0; 16];
            digest[..8].copy_from_slice(&((node as u64) << 32 | life).to_be_bytes());
            digest[8..].copy_from_slice(&call.to_be_bytes());
            lease.request = Some(Digest(digest));
        }
        let give_up_at = self.env.now + FAILOVER_WAIT_MS + until.map_or(0, |until| until - self.env.now);
        edge.calls.insert(call, Held { ticket, request, until, give_up_at, attempts: 0, sent_to: None });
        for at in until.into_iter().chain([give_up_at]) {
            self.env.at(at, edge_event(node, life));
        }
        self.forward(node, call)
    }

    /// Sends a call to the owner that the node knows.
    fn forward(&mut self, node: NodeId, call: u64) -> Result<(), String> {
        let now = self.env.now;
        let Some((epoch, owner)) = self.nodes[node].route else { return Ok(()) };
        let Some(held) = self.nodes[node].edge.calls.get_mut(&call) else { return Ok(()) };
        held.attempts += 1;
        held.sent_to = Some(epoch);
        if held.attempts > 1 {
            self.env.coverage.bump(Covered::CallRepeated);
        }
        let attempt = Attempt { call, number: held.attempts };
        let mut request = held.request.clone();
        if let Request::Poll { until, .. } | Request::Wait { until, .. } = &mut request {
            *until = Time(held.until.unwrap_or(now).saturating_sub(now));
        }
        let ticket = held.ticket.clone();
        self.send(node, owner, Message::Call { attempt, epoch, request, ticket });
        Ok(())
    }

    /// The route of a node has changed: everything that it holds goes to the next owner.
    pub(super) fn route_changed(&mut self, node: NodeId) -> Result<(), String> {
        let calls: Vec<u64> = self.nodes[node].edge.calls.keys().copied().collect();
        calls.into_iter().try_for_each(|call| self.forward(node, call))
    }

    /// The connection with a node was lost: what was sent there is sent again.
    pub(super) fn calls_lost(&mut self, node: NodeId, peer: NodeId) -> Result<(), String> {
        if self.nodes[node].route.is_some_and(|(_, owner)| owner == peer) {
            return self.route_changed(node);
        }
        Ok(())
    }

    /// An answer of the owner reaches the edge.
    pub(super) fn replied(
        &mut self,
        node: NodeId,
        attempt: Attempt,
        epoch: u64,
        reply: Option<Reply>,
    ) -> Result<(), String> {
        let now = self.env.now;
        let Some(held) = self.nodes[node].edge.calls.get_mut(&attempt.call) else { return Ok(()) };
        if held.attempts != attempt.number || held.sent_to.is_none() {
            return Ok(());
        }
        let is_over = |reply: &Reply| {
            matches!(reply, Reply::Unavailable(Unavailable::Stopped | Unavailable::OutcomeUnknown))
        };
        let is_early = |reply: &Reply| {
            matches!(reply, Reply::Leased(grants) if grants.is_empty())
                && held.until.is_some_and(|until| until > now + EARLY_MS)
        };
        let Some(reply) = reply.filter(|reply| !is_over(reply) && !is_early(reply)) else {
            // The owner is gone; the next one is asked when it is known.
            held.sent_to = None;
            return Ok(());
        };
        let reply = if held.attempts > 1 { answer_to_repeat(&held.request, reply) } else { reply };
        self.answer(node, attempt.call, reply, Some(epoch))
    }

    /// Answers a call. An answer of an owner is judged by what its epoch could know.
    fn answer(&mut self, node: NodeId, call: u64, reply: Reply, epoch: Option<u64>) -> Result<(), String> {
        let Some(held) = self.nodes[node].edge.calls.remove(&call) else { return Ok(()) };
        if let Some(epoch) = epoch
            && !matches!(reply, Reply::Unavailable(_))
            && !matches!(&reply, Reply::Leased(grants) if grants.is_empty())
        {
            self.env.auditor.read(&Entry::AnsweredBy { ask: held.ticket.ask, epoch })?;
        }
        self.env.send_reply(held.ticket, reply, None)
    }

    /// Ends what has waited long enough.
    pub(super) fn look_at_calls(&mut self, node: NodeId) -> Result<(), String> {
        let now = self.env.now;
        let due = |held: &Held| now >= held.give_up_at || held.until.is_some_and(|until| now >= until);
        let edge = &self.nodes[node].edge;
        let over: Vec<u64> = edge.calls.iter().filter(|(_, held)| due(held)).map(|(call, _)| *call).collect();
        for call in over {
            let Some(held) = self.nodes[node].edge.calls.get(&call) else { continue };
            let is_poll = matches!(held.request, Request::Poll { .. });
            if now >= held.give_up_at {
                let reply = match is_poll {
                    true => Reply::Leased(Vec::new()),
                    false => Reply::Unavailable(Unavailable::OutcomeUnknown),
                };
                self.answer(node, call, reply, None)?;
            } else if is_poll && held.sent_to.is_none() {
                self.answer(node, call, Reply::Leased(Vec::new()), None)?;
            }
        }
        Ok(())
    }
}

fn edge_event(node: NodeId, life: u64) -> SimEvent {
    SimEvent::Cluster(ClusterEvent::Edge { node, life })
}
