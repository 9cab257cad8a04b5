//! Log lines about records, written once the records are durable. Each line has the task, the attempt and the lease.

use std::sync::Arc;

use authority::event::{ExpiryCause, NextStep};
use authority::{DeadReason, Event, Position, State, TaskId};

pub struct JournalLine {
    task: TaskId,
    attempt: u32,
    lease: Option<Position>,
    what: What,
}

enum What {
    Submitted { queue: Arc<authority::QueueKey> },
    Granted { worker: Arc<str> },
    Completed,
    Retrying { message: Arc<str> },
    Failed { message: Arc<str> },
    Dead { reason: DeadReason },
    Expired { cause: ExpiryCause },
    Released,
    CancelAsked { reason: Arc<str> },
}

impl JournalLine {
    /// A line for an event that was just applied, if it is worth one and anyone would see it.
    pub fn of(state: &State, event: &Event) -> Option<JournalLine> {
        if !tracing::enabled!(tracing::Level::WARN) {
            return None;
        }
        let (lease, what) = match event {
            Event::TaskCreated(event) if info() => (None, What::Submitted { queue: event.queue.clone() }),
            Event::LeaseGranted(event) if info() => {
                (Some(state.position()), What::Granted { worker: event.worker.clone() })
            }
            Event::TaskCompleted(event) if info() => (Some(event.fencing_token), What::Completed),
            Event::LeaseReleased(event) if info() => (Some(event.fencing_token), What::Released),
            Event::CancelRequested(event) if info() => {
                (None, What::CancelAsked { reason: event.reason.clone() })
            }
            Event::LeaseExpired(event) => (Some(event.fencing_token), What::Expired { cause: event.cause }),
            Event::TaskFailed(event) => {
                let message = event.error.message.clone();
                let what = match event.next {
                    NextStep::RetryAt(_) => What::Retrying { message },
                    NextStep::Final => What::Failed { message },
                };
                (Some(event.fencing_token), what)
            }
            Event::TaskDead(event) => (
                event.report.as_ref().map(|report| report.fencing_token),
                What::Dead { reason: event.reason },
            ),
            _ => return None,
        };
        let task = event.task()?;
        let attempt = state.task(task).map_or(0, |task| task.attempt);
        Some(JournalLine { task, attempt, lease, what })
    }

    pub fn log(&self) {
        let JournalLine { task, attempt, lease, what } = self;
        let lease = lease.map(|lease| lease.0);
        match what {
            What::Submitted { queue } => {
                tracing::info!(%task, attempt, lease, queue = %queue.name, tenant = %queue.scope.tenant, "task submitted");
            }
            What::Granted { worker } => tracing::info!(%task, attempt, lease, %worker, "lease granted"),
            What::Completed => tracing::info!(%task, attempt, lease, "task completed"),
            What::Released => tracing::info!(%task, attempt, lease, "lease released"),
            What::CancelAsked { reason } => {
                tracing::info!(%task, attempt, lease, ?reason, "cancel requested")
            }
            What::Retrying { message } => {
                tracing::warn!(%task, attempt, lease, ?message, "attempt failed; the task waits for its next one");
            }
            What::Expired { cause } => tracing::warn!(%task, attempt, lease, ?cause, "lease expired"),
            What::Failed { message } => tracing::error!(%task, attempt, lease, ?message, "task failed"),
            What::Dead { reason: DeadReason::Cancelled } => {
                tracing::info!(%task, attempt, lease, "task cancelled");
            }
            What::Dead { reason } => {
                tracing::error!(%task, attempt, lease, reason = reason.name(), "task is dead")
            }
        }
    }
}

fn info() -> bool {
    tracing::enabled!(tracing::Level::INFO)
}
