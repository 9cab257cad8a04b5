//! The attempt guard: checks that a callback is about the current attempt of its task, and makes the refusal if not. It
//! decides nothing: a report goes to the authority whenever token and body agree, so that a repeat of an accepted report
//! gets the same answer, whatever the state of the task.

use std::sync::Arc;

use authority::{Task, TaskState};
use coordinator::TaskDetail;

use super::caller::Caller;
use super::refusal::{Refusal, final_state};

/// A caller that may speak of its attempt.
pub(super) struct Admitted {
    pub detail: Box<TaskDetail>,
    /// Whether this worker said before that it began.
    pub began: bool,
}

/// Whether the caller may speak of this attempt as this worker. The first worker that began it binds it.
pub(super) async fn admit(caller: &Caller, attempt: u32, worker: &Arc<str>) -> Result<Admitted, Refusal> {
    let detail = read(caller).await?;
    let task = &detail.view.task;
    if attempt != caller.lease.attempt {
        // One of the two is not the expected one, and that one is named.
        let expected = expected(task);
        let received = if attempt == expected { caller.lease.attempt } else { attempt };
        return Err(mismatch(caller, expected, received));
    }
    let current = task.lease().filter(|lease| lease.fencing_token == caller.lease.fencing_token);
    let first = current.and_then(|lease| lease.started_by.as_ref());
    if first.is_some_and(|first| first != worker) {
        Err(Refusal::attempt_already_started())
    } else {
        Ok(Admitted { began: first.is_some(), detail })
    }
}

/// The refusal of a start or a report without authority.
pub(super) async fn lost(caller: &Caller) -> Result<Refusal, Refusal> {
    let detail = read(caller).await?;
    let task = &detail.view.task;
    Ok(match final_state(task) {
        Some(state) if task.attempt == caller.lease.attempt => {
            Refusal::already_terminal(state, "The task has ended")
        }
        _ => mismatch(caller, expected(task), caller.lease.attempt),
    })
}

/// The refusal of a heartbeat without authority.
pub(super) async fn gone(caller: &Caller) -> Result<Refusal, Refusal> {
    let detail = read(caller).await?;
    let task = &detail.view.task;
    Ok(if task.attempt == caller.lease.attempt {
        Refusal::task_expired()
    } else {
        mismatch(caller, expected(task), caller.lease.attempt)
    })
}

async fn read(caller: &Caller) -> Result<Box<TaskDetail>, Refusal> {
    let task = caller.app.handle.task(caller.lease.scope.clone(), caller.lease.task).await?;
    task.ok_or_else(Refusal::task_not_found)
}

/// The attempt that the task is at; while it waits, the one that it waits for.
fn expected(task: &Task) -> u32 {
    match task.state() {
        TaskState::Waiting => task.attempt.saturating_add(1),
        _ => task.attempt,
    }
}

fn mismatch(caller: &Caller, expected: u32, received: u32) -> Refusal {
    let task = caller.lease.task;
    tracing::warn!(%task, expected, received, "a callback of another attempt was ignored");
    Refusal::attempt_mismatch(expected, received)
}
