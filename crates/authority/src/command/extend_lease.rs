//! A worker's heartbeat asks for more time. The extension that is granted is the fact.

use std::sync::Arc;

use super::Decision;
use super::lease_tasks::lease_end;
use super::verdict::expire;
use crate::event::{Event, LeaseExtended};
use crate::lease_ref::LeaseStatus;
use crate::rules;
use crate::{LeaseRef, Rejection, State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendLease {
    pub lease: LeaseRef,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtendAnswer {
    /// The lease lives until then. `cancel` is the reason when the worker is to stop.
    Extended {
        expires_at: Time,
        cancel: Option<Arc<str>>,
    },
    /// The lease is over and never comes back.
    Lost,
    Rejected(Rejection),
}

impl ExtendLease {
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<ExtendAnswer> {
        let task = match rules::status_for_heartbeat(self.lease.status(state, now)) {
            LeaseStatus::Rejected(why) => return Decision::only(ExtendAnswer::Rejected(why)),
            LeaseStatus::Stale(..) => return Decision::only(ExtendAnswer::Lost),
            LeaseStatus::Expired(slot, _) => {
                return Decision { events: expire(state, slot, now), answer: ExtendAnswer::Lost };
            }
            LeaseStatus::Live(_, task) => task,
        };
        let Some(lease) = task.lease() else { return Decision::only(ExtendAnswer::Lost) };
        let cancel = task.cancel.as_ref().map(|cancel| cancel.reason.clone());
        let expires_at = lease_end(task, lease.length_ms, lease.granted_at, now);
        // Heartbeats that come faster than a tenth of the lease cost no record.
        let young = now.since_ms(lease.extended_at) < lease.length_ms / 10;
        if young || expires_at <= lease.expires_at {
            return Decision::only(ExtendAnswer::Extended { expires_at: lease.expires_at, cancel });
        }
        let extended = LeaseExtended { task: task.id, fencing_token: lease.fencing_token, expires_at };
        Decision::with(Event::LeaseExtended(extended), ExtendAnswer::Extended { expires_at, cancel })
    }
}
