//! `lessor queue get`: one queue, its counts and settings.

use anyhow::Result;
use wire::Queue;

use super::view;
use crate::client::http::Client;
use crate::client::show::Output;

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  lessor queue get mail")]
pub(super) struct Options {
    /// The queue's name
    name: String,
}

pub(super) async fn run(options: &Options, client: &Client, json: bool) -> Result<()> {
    let answer = client.get(&["queues", &options.name], &()).await?;
    if json {
        return Output::new().line(answer.text());
    }
    let queue: Queue = answer.parse()?;
    Output::new().print(view::full(&queue))
}
