//! `lessor queue get`: one queue, its counts and settings.

use anyhow::Result;

use super::view;
use crate::client::http::Client;

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  lessor queue get mail")]
pub(crate) struct Options {
    /// The queue's name
    name: String,
}

pub(super) async fn run(options: &Options, client: &Client, json: bool) -> Result<()> {
    let answer = client.get(&["queues", &options.name], &()).await?;
    answer.print(json, view::full)
}
