//! `lessor task cancel`: ask a task to stop.

use anyhow::Result;
use jiff::Timestamp;
use wire::{CancelTask, Task, TaskState};

use crate::client::http::Client;
use crate::client::show::{state, time};

#[derive(clap::Args)]
#[command(after_help = "\
A waiting task is dead at once. The worker of a leased one is told with its next heartbeat; it may still complete the \
task until its grace period is over. Cancelling a task again, or a final one, changes nothing.

Example:
  lessor task cancel 019a8a3c-5b1e-7000-8000-0000000000aa --reason 'wrong address'")]
pub(crate) struct Options {
    /// The task's id
    #[arg(value_name = "ID")]
    task_id: String,

    /// Told to the worker and shown with the task [default: user_requested]
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(super) async fn run(options: &Options, client: &Client, json: bool) -> Result<()> {
    let body = CancelTask { reason: options.reason.clone() };
    let answer = client.post(&["tasks", &options.task_id, "cancel"], &body).await?;
    answer.print(json, |task: Task| format!("{}\n", describe(&task, Timestamp::now())))
}

fn describe(task: &Task, now: Timestamp) -> String {
    let id = &task.task_id;
    match (&task.cancel_requested, task.state) {
        (Some(cancel), TaskState::Leased) => {
            let end = time::relative(cancel.grace_until, now);
            format!("Task {id} is asked to stop; it ends {end} at the latest.")
        }
        (_, TaskState::Failed | TaskState::Dead) => {
            format!("Task {id} is {} ({}).", task.state.name(), state::why(task))
        }
        _ => format!("Task {id} is {}.", task.state.name()),
    }
}
