//! `lessor task redrive`: do a dead letter again.

use anyhow::Result;
use wire::Submitted;

use crate::client::http::Client;

#[derive(clap::Args)]
#[command(after_help = "\
The new task has the payload and the settings of the old one, but neither its deadline nor its dedup key. The old task \
stays as it is. Redriving a task again gives the same new task.

Example:
  lessor task redrive 019a8a3c-5b1e-7000-8000-0000000000aa")]
pub(crate) struct Options {
    /// The id of a FAILED or DEAD task
    #[arg(value_name = "ID")]
    task_id: String,
}

pub(super) async fn run(options: &Options, client: &Client, json: bool) -> Result<()> {
    let id = &options.task_id;
    let answer = client.post(&["tasks", id, "redrive"], &serde_json::json!({})).await?;
    answer.print(json, |new: Submitted| {
        format!("Task {} does {id} again; it is {}.\n", new.task_id, new.state.name())
    })
}
