//! A worker says that it finished its task.

use std::sync::Arc;

use super::Decision;
use super::verdict::{Verdict, judge};
use crate::event::{Event, TaskCompleted};
use crate::{Digest, LeaseRef, Outcome, ReportDetails, State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportCompletion {
    pub lease: LeaseRef,
    /// Of the outcome and the result as parsed content.
    pub digest: Digest,
    pub result: Arc<[u8]>,
    pub details: Option<Arc<ReportDetails>>,
}

impl ReportCompletion {
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<Verdict> {
        judge(state, &self.lease, self.digest, now, |_, task| {
            let completed = TaskCompleted {
                task: task.id,
                fencing_token: self.lease.fencing_token,
                digest: self.digest,
                result: self.result.clone(),
                details: self.details.clone(),
            };
            (Event::TaskCompleted(completed), Outcome::Completed)
        })
    }
}
