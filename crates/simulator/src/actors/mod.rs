//! The actors that use the coordinator: clients, workers, operators and attackers. Each is a small state machine that
//! timers and answers wake, and that returns its next requests.

mod cast;
mod client;
mod hostile;
mod operator;
mod worker;

pub(crate) use cast::Cast;
pub(crate) use client::Client;
pub(crate) use hostile::Hostile;
pub(crate) use operator::Operator;
pub(crate) use worker::Worker;

use std::collections::BTreeMap;
use std::sync::Arc;

use authority::{ActorKind, Digest, LeaseRef, Position, Properties, Scope, TaskId};
use coordinator::{Reply, Request};

use crate::prng::Prng;

pub(crate) trait Actor {
    fn wake(&mut self, timer: u64, out: &mut Out);
    fn answered(&mut self, call: u64, reply: Reply, out: &mut Out);
    /// No answer came in time; whether anything happened is unknown.
    fn unanswered(&mut self, call: u64, out: &mut Out);
}

/// What an actor sees, and where it puts what it does.
pub(crate) struct Out<'a> {
    pub now: u64,
    pub rng: &'a mut Prng,
    /// Faults are over: no new work, and everybody behaves.
    pub calm: bool,
    /// Every lease that was ever delivered.
    pub issued: &'a BTreeMap<Position, LeaseRef>,
    /// Calls: the actor's number for it, the request, and how long the actor waits.
    pub calls: Vec<(u64, Request, u64)>,
    /// Timers: in so many milliseconds, the actor's number for it.
    pub timers: Vec<(u64, u64)>,
}

/// The tenant that an actor with this number belongs to.
pub(crate) fn scope(number: u64) -> Scope {
    let tenant = if number.is_multiple_of(2) { "acme" } else { "umbrella" };
    Scope { tenant: Arc::from(tenant), workspace: Arc::from("main") }
}

/// Who asks for a change to a task: nobody in particular, the holder of a key, or that of a token with the same name.
fn actor_of(task: TaskId) -> Option<Arc<authority::Actor>> {
    let kind = match task.0 % 3 {
        0 => return None,
        1 => ActorKind::Key,
        _ => ActorKind::Token,
    };
    Some(Arc::new(authority::Actor::new(kind, "id", "ci")))
}

pub(crate) const QUEUES: [&str; 2] = ["mail", "build"];

/// What some tasks require and some workers offer.
pub(crate) fn linux() -> Arc<Properties> {
    Arc::new(Properties::new([(Arc::from("os"), Arc::from("linux"))]))
}

/// The digest of a small content.
pub(crate) fn digest(kind: u8, number: u64) -> Digest {
    let mut bytes = [kind; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Digest(bytes)
}
