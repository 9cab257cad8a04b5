//! Waits for a task to become final, by long polls: the server answers at once when it does.

use std::time::Duration;

use wire::{Task, WaitTask};

use crate::client::Error;
use crate::client::http::{Answer, Client};

/// How long one poll waits. Shorter than what a gateway in between would cut off.
const POLL: Duration = Duration::from_secs(25);

/// The final task, and the answer that told it.
pub async fn until_final(client: &Client, task_id: &str) -> Result<(Task, Answer), Error> {
    loop {
        let query = WaitTask { wait_ms: Some(POLL.as_millis() as u64) };
        let answer = client.get_waiting(&["tasks", task_id], &query, POLL).await?;
        let task: Task = answer.read()?;
        if task.state.is_final() {
            return Ok((task, answer));
        }
    }
}
