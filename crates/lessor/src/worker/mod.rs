//! `lessor worker`: runs actions and commands for a coordinator, and lists, drains and stops the workers of a server.

mod check;
mod daemon;
mod embedded;
mod embedded_dir;
mod execute;
pub(crate) mod file;
mod instance_watch;
mod instances;
mod metrics;
mod settings;
mod worker_id;

pub(crate) use embedded::{Embedded, EmbeddedOptions};
pub(crate) use file::WorkerFile;
pub(crate) use instances::Instances;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::client;

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lease tasks from a coordinator and run them, until it is told to stop
    Daemon(Box<daemon::Options>),
    /// Find out whether a worker could do its work here
    Check(Box<check::Options>),
    /// Run one action with no coordinator, to look at what it does
    Execute(execute::Options),
    /// List the workers of a server
    List(client::worker::ListOptions),
    /// Grant a worker nothing more; it finishes what it holds
    Drain(client::worker::DrainOptions),
    /// Drain a worker and ask it to stop
    Stop(client::worker::StopOptions),
    /// Let a drained worker take work again
    Resume(client::worker::ResumeOptions),
}

pub(crate) fn run(options: Options) -> Result<ExitCode> {
    match options.command {
        Command::Daemon(options) => daemon::run(*options).map(|()| ExitCode::SUCCESS),
        Command::Check(options) => client::block_on(check::run(*options)),
        Command::Execute(options) => client::block_on(execute::run(&options)),
        Command::List(options) => client::block_on(client::worker::list(&options)),
        Command::Drain(options) => client::block_on(client::worker::drain(&options)),
        Command::Stop(options) => client::block_on(client::worker::stop(&options)),
        Command::Resume(options) => client::block_on(client::worker::resume(&options)),
    }
}
