//! A worker says that it begins. The first one to say so binds the attempt to itself.

use std::sync::Arc;

use super::Decision;
use super::verdict::expire;
use crate::event::{AttemptStarted, Event};
use crate::lease_ref::LeaseStatus;
use crate::{LeaseRef, Rejection, State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartAttempt {
    pub lease: LeaseRef,
    /// Who begins; where work is pushed this is not the holder of the lease.
    pub started_by: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartAnswer {
    Started,
    /// Another worker began this attempt.
    AlreadyStarted(Arc<str>),
    /// The task is being cancelled: do not begin.
    Cancelled(Arc<str>),
    Lost,
    Rejected(Rejection),
}

impl StartAttempt {
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<StartAnswer> {
        let task = match self.lease.status(state, now) {
            LeaseStatus::Rejected(why) => return Decision::only(StartAnswer::Rejected(why)),
            LeaseStatus::Stale(..) => return Decision::only(StartAnswer::Lost),
            LeaseStatus::Expired(slot, _) => {
                return Decision { events: expire(state, slot, now), answer: StartAnswer::Lost };
            }
            LeaseStatus::Live(_, task) => task,
        };
        if let Some(cancel) = &task.cancel {
            return Decision::only(StartAnswer::Cancelled(cancel.reason.clone()));
        }
        match task.lease().and_then(|lease| lease.started_by.as_ref()) {
            Some(worker) if *worker == self.started_by => Decision::only(StartAnswer::Started),
            Some(worker) => Decision::only(StartAnswer::AlreadyStarted(worker.clone())),
            None => {
                let worker = self.started_by.clone();
                let started =
                    AttemptStarted { task: task.id, fencing_token: self.lease.fencing_token, worker };
                Decision::with(Event::AttemptStarted(started), StartAnswer::Started)
            }
        }
    }
}
