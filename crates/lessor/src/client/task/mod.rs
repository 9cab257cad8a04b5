//! `lessor task`: look at tasks, stop them, do them again.

mod cancel;
mod get;
mod history;
mod list;
mod redrive;
pub(crate) mod view;

use std::process::ExitCode;

use anyhow::Result;

use super::connection::CommandGroup;
use super::http::Client;

pub(crate) type Options = CommandGroup<Command>;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Show one task
    Get(get::Options),
    /// List tasks: the queues by name, in each the newest task first
    List(list::Options),
    /// Ask a task to stop
    Cancel(cancel::Options),
    /// Do a FAILED or DEAD task again, as a new task
    Redrive(redrive::Options),
    /// Show what the ledger says about one task
    History(history::Options),
}

pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let client = Client::new(&options.connection)?;
    let json = options.connection.json;
    match &options.command {
        Command::Get(options) => get::run(options, &client, json).await,
        Command::List(options) => list::run(options, &client, json).await,
        Command::Cancel(options) => cancel::run(options, &client, json).await,
        Command::Redrive(options) => redrive::run(options, &client, json).await,
        Command::History(options) => history::run(options, &client, json).await,
    }?;
    Ok(ExitCode::SUCCESS)
}
