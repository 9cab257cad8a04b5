//! Waits for a task to become final, by long polls: the server answers at once when it does.

use std::time::Duration;

use jiff::Timestamp;
use wire::{Task, TaskState, WaitTask};

use crate::client::Error;
use crate::client::http::{Answer, Client};
use crate::client::show::{note, text};

/// How long one poll waits. Shorter than what a gateway in between would cut off.
const POLL: Duration = Duration::from_secs(25);

/// How long it may take to find a worker before a person should know.
const LATE: Duration = Duration::from_secs(3);

/// The final task, and the answer that told it.
pub(super) async fn until_final(client: &Client, task_id: &str) -> Result<(Task, Answer), Error> {
    let mut poll = LATE;
    loop {
        let query = WaitTask { wait_ms: Some(poll.as_millis() as u64) };
        let answer = client.get_waiting(&["tasks", task_id], &query, poll).await?;
        let task: Task = answer.parse()?;
        if task.state.is_final() {
            return Ok((task, answer));
        }
        if poll == LATE && task.state == TaskState::Waiting {
            note(match task.not_before.filter(|time| *time > Timestamp::now()) {
                Some(time) => format!("Waiting: the task may be leased from {time} on."),
                None => format!("Waiting: no worker has taken it yet from {}.", text::clean(&task.queue)),
            });
        }
        poll = POLL;
    }
}
