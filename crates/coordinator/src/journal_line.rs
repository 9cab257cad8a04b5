//! Log lines about records, written once the records are durable. Each line has the task, the attempt and the lease.

use std::sync::Arc;

use authority::event::{ExpiryCause, NextStep};
use authority::{DeadReason, Event, Position, State, TaskId};

pub struct JournalLine {
    task: TaskId,
    attempt: u32,
    lease: Option<Position>,
    kind: LineKind,
}

enum LineKind {
    Submitted { queue: Arc<authority::QueueKey> },
    Granted { worker: Arc<str> },
    Completed,
    Retrying { message: Arc<str> },
    Failed { message: Arc<str> },
    Dead { reason: DeadReason },
    Expired { cause: ExpiryCause },
    Released,
    CancelRequested { reason: Arc<str> },
}

impl JournalLine {
    /// A line for an event that was just applied, if it is worth one and anyone would see it.
    pub fn of(state: &State, event: &Event) -> Option<JournalLine> {
        if !tracing::enabled!(tracing::Level::WARN) {
            return None;
        }
        let (lease, kind) = match event {
            Event::TaskCreated(event) if info() => (None, LineKind::Submitted { queue: event.queue.clone() }),
            Event::LeaseGranted(event) if info() => {
                (Some(state.position()), LineKind::Granted { worker: event.worker.clone() })
            }
            Event::TaskCompleted(event) if info() => (Some(event.fencing_token), LineKind::Completed),
            Event::LeaseReleased(event) if info() => (Some(event.fencing_token), LineKind::Released),
            Event::CancelRequested(event) if info() => {
                (None, LineKind::CancelRequested { reason: event.reason.clone() })
            }
            Event::LeaseExpired(event) => {
                (Some(event.fencing_token), LineKind::Expired { cause: event.cause })
            }
            Event::TaskFailed(event) => {
                let message = event.error.message.clone();
                let kind = match event.next {
                    NextStep::RetryAt(_) => LineKind::Retrying { message },
                    NextStep::Final => LineKind::Failed { message },
                };
                (Some(event.fencing_token), kind)
            }
            Event::TaskDead(event) => (
                event.report.as_ref().map(|report| report.fencing_token),
                LineKind::Dead { reason: event.reason },
            ),
            _ => return None,
        };
        let task = event.task()?;
        let attempt = state.task(task).map_or(0, |task| task.attempt);
        Some(JournalLine { task, attempt, lease, kind })
    }

    pub fn log(&self) {
        let JournalLine { task, attempt, lease, kind } = self;
        let lease = lease.map(|lease| lease.0);
        match kind {
            LineKind::Submitted { queue } => {
                tracing::info!(%task, attempt, lease, queue = %queue.name, tenant = %queue.scope.tenant, "task submitted");
            }
            LineKind::Granted { worker } => tracing::info!(%task, attempt, lease, %worker, "lease granted"),
            LineKind::Completed => tracing::info!(%task, attempt, lease, "task completed"),
            LineKind::Released => tracing::info!(%task, attempt, lease, "lease released"),
            LineKind::CancelRequested { reason } => {
                tracing::info!(%task, attempt, lease, ?reason, "cancel requested")
            }
            LineKind::Retrying { message } => {
                tracing::warn!(%task, attempt, lease, error = ?message, "attempt failed; the task waits for its next one");
            }
            LineKind::Expired { cause } => tracing::warn!(%task, attempt, lease, ?cause, "lease expired"),
            LineKind::Failed { message } => {
                tracing::error!(%task, attempt, lease, error = ?message, "task failed")
            }
            LineKind::Dead { reason: DeadReason::Cancelled } => {
                tracing::info!(%task, attempt, lease, "task cancelled");
            }
            LineKind::Dead { reason } => {
                tracing::error!(%task, attempt, lease, reason = reason.name(), "task is dead")
            }
        }
    }
}

fn info() -> bool {
    tracing::enabled!(tracing::Level::INFO)
}
