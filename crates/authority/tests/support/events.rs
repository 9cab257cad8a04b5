//! Events that no command would decide, to see that they are refused.

use std::sync::Arc;

use authority::event::{Event, LeaseGranted, TaskCompleted};
use authority::{LeaseRef, State, TaskId, Time};

use super::commands;

pub(crate) fn created(id: u128) -> Event {
    State::new().decide(&commands::submit(id), Time::ZERO).events.remove(0)
}

/// A grant to `w1` until 9,000.
pub(crate) fn grant(task: TaskId, attempt: u32) -> Event {
    Event::LeaseGranted(LeaseGranted {
        task,
        attempt,
        worker: Arc::from("w1"),
        session: None,
        request: None,
        length_ms: 1_000,
        expires_at: Time(9_000),
        contract: Some(authority::Contract::Leases),
    })
}

pub(crate) fn completed(lease: &LeaseRef) -> Event {
    let (digest, result) = (commands::digest("1"), Arc::from(*b"1"));
    Event::TaskCompleted(TaskCompleted {
        task: lease.task,
        fencing_token: lease.fencing_token,
        digest,
        result,
        details: None,
    })
}
