//! Named rules that decisions and events rest on, and the only file of the authority that asks for injected bugs.
//!
//! Each rule states what is right. Where a test can inject a bug, the rule gives the wrong answer instead; every caller
//! reads like the model and knows nothing of the bugs.

use std::sync::Arc;

use crate::command::Verdict;
use crate::injected_bug::{InjectedBug, is};
use crate::lease_ref::LeaseStatus;
use crate::state::{QueueEntry, ReadyIndex, Slot};
use crate::{
    Backoff, CancelRequest, Contract, Digest, Lease, Outcome, Position, QueueConfig, Report, Task, Time,
};

// Leases.

/// The position that a grant will have, which is its fencing token: `events` of its command are recorded before it.
pub(crate) fn next_fencing_token(newest: Position, events: usize) -> Position {
    let before = if is(InjectedBug::TokenRepeated) { 0 } else { events as u64 };
    Position(newest.0 + 1 + before)
}

/// A poll leases from a queue once, however often it names the queue: nothing is applied between two of its grants.
pub(crate) fn is_polled_already(earlier: &[Arc<str>], queue: &Arc<str>) -> bool {
    earlier.contains(queue) && !is(InjectedBug::LeaseGrantedTwice)
}

/// Only a waiting task may be granted.
pub(crate) fn may_be_granted(task: &Task) -> bool {
    task.state() == crate::TaskState::Waiting || is(InjectedBug::LeaseGrantedTwice)
}

/// Each grant raises the attempt by one.
pub(crate) fn is_next_attempt(task: &Task, attempt: u32) -> bool {
    Some(attempt) == task.attempt.checked_add(1) || is(InjectedBug::LeaseGrantedTwice)
}

/// Only the worker that holds a lease may use it.
pub(crate) fn is_held_by(lease: &Lease, worker: &Arc<str>) -> bool {
    lease.worker == *worker || is(InjectedBug::WrongWorkerAccepted)
}

/// The current lease is live until its time passes or the grace period of a cancel ends.
pub(crate) fn is_live(task: &Task, lease: &Lease, now: Time) -> bool {
    let in_grace = task.cancel.as_ref().is_none_or(|cancel| now < cancel.grace_until);
    !lease.is_over(now) && (in_grace || is(InjectedBug::GraceNotChecked))
}

/// An event is about the task's current lease or about none.
pub(crate) fn is_current(lease: &Lease, fencing_token: Position) -> bool {
    lease.fencing_token == fencing_token || is(InjectedBug::StaleLeaseAccepted)
}

/// A lease that the task granted before the current one is stale.
pub(crate) fn earlier_lease(slot: Slot, task: &Task) -> LeaseStatus<'_> {
    if task.lease().is_some() && is(InjectedBug::StaleLeaseAccepted) {
        LeaseStatus::Live(slot, task)
    } else {
        LeaseStatus::Stale(task, None)
    }
}

/// A heartbeat never revives an expired lease.
pub(crate) fn status_for_heartbeat(status: LeaseStatus<'_>) -> LeaseStatus<'_> {
    match status {
        LeaseStatus::Expired(slot, task) if task.cancel.is_none() && is(InjectedBug::ExpiredLeaseRevived) => {
            LeaseStatus::Live(slot, task)
        }
        status => status,
    }
}

/// An event under a lease is recorded no later than the lease lives.
pub(crate) fn is_in_time(lease: &Lease, now: Time) -> bool {
    !lease.is_over(now) || is(InjectedBug::LateReportCommits) || is(InjectedBug::ExpiredLeaseRevived)
}

/// The leases of a lost worker end if their contract requires a worker that is heard of.
pub(crate) fn ends_with_worker(lease: &Lease) -> bool {
    matches!(lease.contract, Some(Contract::Scheduler | Contract::Stream))
        || is(InjectedBug::AnyLeaseEndsWithWorker)
}

/// An expired attempt counts against the limit, so it adds nothing to the releases.
pub(crate) fn releases_by_expiry() -> u32 {
    u32::from(is(InjectedBug::ExpiryCostsNothing))
}

// Reports.

/// A report commits under a live lease only, and a cancel alone takes no lease away.
pub(crate) fn status_for_report(status: LeaseStatus<'_>, digest: Digest) -> LeaseStatus<'_> {
    match status {
        LeaseStatus::Expired(slot, task) if task.cancel.is_none() && is(InjectedBug::LateReportCommits) => {
            LeaseStatus::Live(slot, task)
        }
        LeaseStatus::Live(_, task) if task.cancel.is_some() && is(InjectedBug::ReportLostToCancel) => {
            let (attempt, outcome) = (task.attempt, Outcome::Discarded);
            LeaseStatus::Stale(task, Some(Report { attempt, fencing_token: Position::ZERO, digest, outcome }))
        }
        status => status,
    }
}

/// A second report of an attempt repeats the first when its content is the same.
pub(crate) fn is_repeat(first: &Report, digest: Digest) -> bool {
    first.digest == digest || is(InjectedBug::ConflictingReportAccepted)
}

/// A repeated report gets the verdict of the first.
pub(crate) fn recorded_verdict(first: &Report) -> Verdict {
    match first.outcome {
        Outcome::Discarded => Verdict::Cancelled,
        _ if is(InjectedBug::RepeatCalledStale) => Verdict::Cancelled,
        outcome => Verdict::Committed(outcome),
    }
}

/// A failure that may be retried is retried while attempts are left.
pub(crate) fn is_retried(retryable: bool, used_attempts: u32, max_attempts: u32) -> bool {
    retryable && used_attempts < max_attempts && !is(InjectedBug::RetryForgotten)
}

/// A retry waits for its backoff.
pub(crate) fn retry_delay_ms(backoff: Backoff, failures: u32, draw: u32) -> u64 {
    if is(InjectedBug::BackoffForgotten) { 0 } else { backoff.delay_ms(failures, draw) }
}

// Cancels.

/// The first cancel of a leased task is recorded, and no other.
pub(crate) fn is_new_cancel(task: &Task) -> bool {
    task.cancel.is_none() && !is(InjectedBug::CancelForgotten)
}

/// The cancel that keeps an expired task from waiting again.
pub(crate) fn cancel_at_expiry(task: &Task) -> Option<&CancelRequest> {
    task.cancel.as_deref().filter(|_| !is(InjectedBug::CancelledWaitsAgain))
}

// Queues.

/// A task keeps its dedup key until it is purged.
pub(crate) fn keeps_dedup_key(task: &Task) -> bool {
    !(task.is_final() && is(InjectedBug::DedupKeyForgotten))
}

/// A task waits for its turn again after each attempt that did not end it.
pub(crate) fn is_queued_again(task: &Task) -> bool {
    !(task.attempt > 0 && is(InjectedBug::RequeueForgotten))
}

/// Of two tasks with one priority the task that has waited longer comes first.
pub(crate) fn queue_order(since: Position) -> Position {
    if is(InjectedBug::ReadyOrderReversed) { Position(u64::MAX - since.0) } else { since }
}

/// A task is not leased before its time.
pub(crate) fn is_delayed(not_before: Time, ready_until: Time) -> bool {
    not_before > ready_until && !is(InjectedBug::RetryDelayIgnored)
}

/// Only a final task may be purged.
pub(crate) fn may_be_purged(task: &Task) -> bool {
    task.is_final() || is(InjectedBug::WaitingTaskPurged)
}

/// A purge takes no task that waits.
pub(crate) fn purged_while_waiting(ready: &ReadyIndex) -> Option<QueueEntry> {
    if is(InjectedBug::WaitingTaskPurged) { ready.oldest() } else { None }
}

// Restoring a snapshot.

/// A restored queue has the settings that the snapshot holds.
pub(crate) fn restored_config(config: QueueConfig) -> QueueConfig {
    if is(InjectedBug::SettingsLostAtRestore) { QueueConfig::default() } else { config }
}

/// A restored state knows when each of its tasks is due.
pub(crate) fn restores_timers() -> bool {
    !is(InjectedBug::TimersLostAtRestore)
}

/// A record that the snapshot includes already is not applied again.
pub(crate) fn is_applied_already(seen: Option<Position>, position: Position) -> bool {
    seen.is_some_and(|seen| seen >= position) && !is(InjectedBug::WindowAppliedTwice)
}
