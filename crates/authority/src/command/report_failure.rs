//! A worker says that its attempt failed. The coordinator decides what follows, and the decision is recorded.

use std::sync::Arc;

use super::Decision;
use super::verdict::{Verdict, judge};
use crate::event::{DeadReport, Event, NextStep, TaskDead, TaskFailed};
use crate::rules;
use crate::{
    Category, Digest, LeaseRef, Outcome, QueueSettings, ReportDetails, State, Task, TaskError, Time,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReportFailure {
    pub lease: LeaseRef,
    /// Of the outcome and the error's category, code and message.
    pub digest: Digest,
    pub error: TaskError,
    pub details: Option<Arc<ReportDetails>>,
    /// What the worker thinks, if it says.
    pub retryable: Option<bool>,
    /// A random number for the backoff's jitter.
    pub draw: u32,
}

impl ReportFailure {
    pub(super) fn decide(&self, state: &State, now: Time) -> Decision<Verdict> {
        judge(state, &self.lease, self.digest, now, |slot, task| {
            let settings = &state.queue_at(slot).settings;
            let retry = self.may_retry(settings);
            match &task.cancel {
                Some(cancel) if retry || self.error.category == Category::Cancelled => {
                    let reason = cancel.cause.dead_reason();
                    let report = DeadReport {
                        fencing_token: self.lease.fencing_token,
                        digest: self.digest,
                        error: self.error.clone(),
                        details: self.details.clone(),
                    };
                    let detail = Some(cancel.reason.clone());
                    let dead = TaskDead { task: task.id, reason, detail, report: Some(report), by: None };
                    (Event::TaskDead(dead), Outcome::Dead(reason))
                }
                _ => self.fail(task, settings, retry, now),
            }
        })
    }

    fn fail(&self, task: &Task, settings: &QueueSettings, retry: bool, now: Time) -> (Event, Outcome) {
        let used = task.used_attempts();
        let (next, outcome) = if rules::is_retried(retry, used, task.max_attempts(settings)) {
            let at = now.plus_ms(rules::retry_delay_ms(task.backoff(settings), used, self.draw));
            (NextStep::RetryAt(at), Outcome::RetryAt(at))
        } else {
            (NextStep::Final, Outcome::Failed)
        };
        let failed = TaskFailed {
            task: task.id,
            fencing_token: self.lease.fencing_token,
            digest: self.digest,
            error: self.error.clone(),
            next,
            details: self.details.clone(),
        };
        (Event::TaskFailed(failed), outcome)
    }

    /// The queue's list wins over the worker's word, which wins over the category's default.
    fn may_retry(&self, settings: &QueueSettings) -> bool {
        match (&settings.retry_on, self.retryable) {
            (Some(categories), _) => categories.contains(&self.error.category),
            (None, Some(retryable)) => retryable,
            (None, None) => self.error.category.retryable_by_default(),
        }
    }
}
