//! The answer to a report, and the steps that both kinds of report share.

use std::sync::Arc;

use super::lease_tasks::past_deadline;
use crate::event::{Event, ExpiryCause, LeaseExpired, TaskCancelled, TaskDead};
use crate::lease_ref::{LeaseRef, LeaseStatus};
use crate::limits::MAX_REPORTS;
use crate::rules;
use crate::state::Slot;
use crate::{Actor, DeadReason, Decision, Digest, Lease, Outcome, Rejection, State, Task, Time};

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

/// Judges a report by the verdict table of the model. `accept` is called for the first report under a live lease.
pub(super) fn judge(
    state: &State,
    lease: &LeaseRef,
    digest: Digest,
    now: Time,
    accept: impl FnOnce(Slot, &Task) -> (Event, Outcome),
) -> Decision<Verdict> {
    match rules::status_for_report(lease.status(state, now), digest) {
        LeaseStatus::Stale(_, Some(first)) if rules::is_repeat(&first, digest) => {
            Decision::only(rules::recorded_verdict(&first))
        }
        LeaseStatus::Stale(_, Some(_)) => Decision::only(Verdict::Rejected(Rejection::ConflictingReport)),
        LeaseStatus::Live(slot, task) => {
            let (event, outcome) = accept(slot, task);
            Decision::with(event, Verdict::Committed(outcome))
        }
        LeaseStatus::Expired(slot, task) => {
            let mut events = expire(state, slot, now);
            events.extend(discard(task, lease, digest));
            Decision { events, answer: Verdict::Cancelled }
        }
        LeaseStatus::Stale(task, None) => {
            let events = discard(task, lease, digest).into_iter().collect();
            Decision { events, answer: Verdict::Cancelled }
        }
        LeaseStatus::Rejected(why) => Decision::only(Verdict::Rejected(why)),
    }
}

/// The record that a report came without authority, unless the task remembers too many already.
fn discard(task: &Task, lease: &LeaseRef, digest: Digest) -> Option<Event> {
    let cancelled =
        TaskCancelled { task: task.id, fencing_token: lease.fencing_token, attempt: lease.attempt, digest };
    (task.reports.len() < MAX_REPORTS).then_some(Event::TaskCancelled(cancelled))
}

/// What time does to a lease that has passed: the task waits again, or ends when it was being cancelled, this was
/// its last attempt or its deadline has passed too.
pub(super) fn expire(state: &State, slot: Slot, now: Time) -> Vec<Event> {
    let task = state.task_at(slot);
    let Some(lease) = task.lease() else { return Vec::new() };
    if let Some(cancel) = rules::cancel_at_expiry(task) {
        // The earlier end counts, however late the expiry is noticed.
        let reason = if lease.expires_at >= cancel.grace_until {
            DeadReason::CancelTimeout
        } else {
            cancel.cause.dead_reason()
        };
        return vec![dead(task, reason, Some(cancel.reason.clone()))];
    }
    let timed_out = task.timeout_ms().is_some_and(|ms| lease.expires_at >= lease.granted_at.plus_ms(ms));
    let cause = if timed_out { ExpiryCause::Timeout } else { ExpiryCause::Silence };
    wait_again(state, slot, lease, cause, now)
}

/// What the loss of a worker does to a lease that has not passed: the task waits again where it stood in its queue, or
/// ends for the same reasons as above.
pub(super) fn lose_worker(state: &State, slot: Slot, now: Time) -> Vec<Event> {
    let task = state.task_at(slot);
    let Some(lease) = task.lease() else { return Vec::new() };
    match &task.cancel {
        Some(cancel) if now >= cancel.grace_until => {
            vec![dead(task, DeadReason::CancelTimeout, Some(cancel.reason.clone()))]
        }
        Some(cancel) => vec![dead(task, cancel.cause.dead_reason(), Some(cancel.reason.clone()))],
        None => wait_again(state, slot, lease, ExpiryCause::WorkerLost, now),
    }
}

fn wait_again(state: &State, slot: Slot, lease: &Lease, cause: ExpiryCause, now: Time) -> Vec<Event> {
    let task = state.task_at(slot);
    let exhausted = task.used_attempts() >= task.max_attempts(&state.queue_at(slot).settings);
    let mut events = vec![Event::LeaseExpired(LeaseExpired {
        task: task.id,
        fencing_token: lease.fencing_token,
        cause,
        exhausted,
        since: lease.since.filter(|_| cause == ExpiryCause::WorkerLost),
    })];
    if exhausted {
        events.push(attempts_lost(task, cause));
    } else if task.deadline().is_some_and(|deadline| now >= deadline) {
        events.push(past_deadline(task));
    }
    events
}

/// The end of a task without a report.
pub(super) fn dead(task: &Task, reason: DeadReason, detail: Option<Arc<str>>) -> Event {
    killed(task, reason, detail, &None)
}

/// The same, because somebody asked for it.
pub(super) fn killed(
    task: &Task,
    reason: DeadReason,
    detail: Option<Arc<str>>,
    by: &Option<Arc<Actor>>,
) -> Event {
    Event::TaskDead(TaskDead { task: task.id, reason, detail, report: None, by: by.clone() })
}

/// Whether the events end their task.
pub(super) fn end_task(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::TaskDead(_)))
}

/// The death of a task whose last attempt was lost to time.
pub(super) fn attempts_lost(task: &Task, cause: ExpiryCause) -> Event {
    let detail = match cause {
        ExpiryCause::Silence => None,
        ExpiryCause::Timeout => Some(Arc::from("the last attempt reached its timeoutMs")),
        ExpiryCause::WorkerLost => Some(Arc::from("the worker of the last attempt was lost")),
    };
    dead(task, DeadReason::HeartbeatTimeout, detail)
}
