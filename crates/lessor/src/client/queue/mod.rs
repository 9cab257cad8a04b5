//! `lessor queue`: look at queues and configure them.

mod get;
mod list;
mod push;
mod set;
mod view;

use std::process::ExitCode;

use anyhow::Result;

use super::connection::CommandGroup;
use super::http::Client;

pub(crate) type Options = CommandGroup<Command>;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// List the queues with their counts
    List(list::Options),
    /// Show one queue: counts and settings
    Get(get::Options),
    /// Change settings of a queue
    Set(Box<set::Options>),
}

pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let client = Client::new(&options.connection)?;
    let json = options.connection.json;
    match &options.command {
        Command::List(_) => list::run(&client, json).await,
        Command::Get(options) => get::run(options, &client, json).await,
        Command::Set(options) => set::run(options, &client, json).await,
    }?;
    Ok(ExitCode::SUCCESS)
}
