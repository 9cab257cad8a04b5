//! The command line.

use clap::{Parser, Subcommand};

use crate::client::{queue, submit, task};
use crate::{check_config, conformance, log, run, serve, up, worker};

/// Leases work to workers that may crash, stall, repeat themselves or lie, and accepts exactly one outcome for each
/// task.
#[derive(Parser)]
#[command(name = "lessor", version, about, arg_required_else_help = true, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start everything embedded, on one port, with its data in one directory
    Up(up::Options),
    /// Start as a service, with everything that can be set in a file
    Serve(serve::Options),
    /// Check a configuration file, and show what it comes to
    CheckConfig(check_config::Options),
    /// Run actions for a coordinator
    Worker(worker::Options),
    /// Run a command elsewhere as if it ran here: inputs go there, output and files come back
    Run(Box<run::Options>),
    /// Submit a task, or many from a file
    Submit(Box<submit::Options>),
    /// Look at tasks, cancel them, do them again
    Task(task::Options),
    /// Look at queues and configure them
    Queue(queue::Options),
    /// Read the ledger itself: check it, print it, ask it about the past
    Log(log::Options),
    /// Measure how fast it is here, next to what this machine can do
    Bench(bench::Options),
    /// Check whether a coordinator keeps a contract, requirement by requirement
    Conformance(conformance::Options),
}
