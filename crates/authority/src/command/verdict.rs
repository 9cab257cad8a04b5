//! The answer to a report, and the steps that both kinds of report share.

use std::sync::Arc;

use super::lease_tasks::past_deadline;
use crate::event::{Event, ExpiryCause, LeaseExpired, TaskCancelled, TaskDead};
use crate::limits::MAX_REPORTS;
use crate::lookup::{Found, LeaseRef};
use crate::quirk::{self, Quirk};
use crate::state::Slot;
use crate::{DeadReason, Decision, Digest, Outcome, Rejection, State, Task, Time};

/// Exactly one of these answers every report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This attempt's report is accepted and over; the outcome says what became of the task.
    Committed(Outcome),
    /// The attempt had no authority any more; its report was discarded.
    Cancelled,
    /// The request itself is invalid.
    Rejected(Rejection),
}

/// Judges a report in the order of the model. `accept` is called for the first report under a live lease.
pub(super) fn judge(
    state: &State,
    lease: &LeaseRef,
    digest: Digest,
    now: Time,
    accept: impl FnOnce(Slot, &Task) -> (Event, Outcome),
) -> Decision<Verdict> {
    match lease.find(state, now) {
        Found::Rejected(why) => Decision::only(Verdict::Rejected(why)),
        Found::Past(_, Some(report)) => Decision::only(match report.outcome {
            _ if report.digest != digest && !quirk::is(Quirk::OtherStoryAccepted) => {
                Verdict::Rejected(Rejection::AnotherStory)
            }
            Outcome::Discarded => Verdict::Cancelled,
            _ if quirk::is(Quirk::RepeatCalledStale) => Verdict::Cancelled,
            outcome => Verdict::Committed(outcome),
        }),
        Found::Past(task, None) => {
            let events = discard(task, lease, digest).into_iter().collect();
            Decision { events, answer: Verdict::Cancelled }
        }
        Found::Overdue(slot, task) if task.cancel.is_some() || !quirk::is(Quirk::LateReportCommits) => {
            let mut events = expire(state, slot, now);
            events.extend(discard(task, lease, digest));
            Decision { events, answer: Verdict::Cancelled }
        }
        Found::Current(_, task) if task.cancel.is_some() && quirk::is(Quirk::ReportLostToCancel) => {
            Decision::only(Verdict::Cancelled)
        }
        Found::Current(slot, task) | Found::Overdue(slot, task) => {
            let (event, outcome) = accept(slot, task);
            Decision::with(event, Verdict::Committed(outcome))
        }
    }
}

/// The record that a report came without authority, unless the task remembers too many already.
fn discard(task: &Task, lease: &LeaseRef, digest: Digest) -> Option<Event> {
    let cancelled = TaskCancelled { task: task.id, lease: lease.lease, attempt: lease.attempt, digest };
    (task.reports.len() < MAX_REPORTS).then_some(Event::TaskCancelled(cancelled))
}

/// What time does to a lease that has passed: the task waits again, or ends when it was being cancelled, this was
/// its last attempt or its deadline has passed too.
pub(super) fn expire(state: &State, slot: Slot, now: Time) -> Vec<Event> {
    let task = state.task_at(slot);
    let Some(lease) = task.lease() else { return Vec::new() };
    if let Some(cancel) = &task.cancel
        && !quirk::is(Quirk::CancelledWaitsAgain)
    {
        // What ended first counts, however late somebody looks.
        let reason = match lease.expires_at >= cancel.grace_until {
            true => DeadReason::CancelTimeout,
            false => cancel.cause.dead_reason(),
        };
        let detail = Some(cancel.reason.clone());
        return vec![Event::TaskDead(TaskDead { task: task.id, reason, detail, report: None })];
    }
    let timed_out = task.timeout_ms().is_some_and(|ms| lease.expires_at >= lease.granted_at.plus_ms(ms));
    let cause = if timed_out { ExpiryCause::Timeout } else { ExpiryCause::Silence };
    let exhausted = task.used_attempts() >= task.max_attempts(&state.line(slot).settings);
    let mut events =
        vec![Event::LeaseExpired(LeaseExpired { task: task.id, lease: lease.number, cause, exhausted })];
    if exhausted {
        events.push(attempts_lost(task, cause));
    } else if task.deadline().is_some_and(|deadline| now >= deadline) {
        events.push(past_deadline(task));
    }
    events
}

/// The death of a task whose last attempt was lost to time.
pub(super) fn attempts_lost(task: &Task, cause: ExpiryCause) -> Event {
    let detail = match cause {
        ExpiryCause::Silence => None,
        ExpiryCause::Timeout => Some(Arc::from("the last attempt reached its timeoutMs")),
    };
    Event::TaskDead(TaskDead { task: task.id, reason: DeadReason::HeartbeatTimeout, detail, report: None })
}
