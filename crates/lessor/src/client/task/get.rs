//! `lessor task get`: one task, as it is now.

use anyhow::Result;
use jiff::Timestamp;
use wire::Task;

use super::view;
use crate::client::http::Client;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lessor task get 019a8a3c-5b1e-7000-8000-0000000000aa
  lessor task get 019a8a3c-5b1e-7000-8000-0000000000aa --json | jq .result")]
pub(crate) struct Options {
    /// The task's id
    #[arg(value_name = "ID")]
    task_id: String,
}

pub(super) async fn run(options: &Options, client: &Client, json: bool) -> Result<()> {
    let answer = client.get(&["tasks", &options.task_id], &()).await?;
    answer.print(json, |task: Task| view::full(&task, Timestamp::now()))
}
