//! `lessor log`: the ledger itself, read from its directory or its database. It takes no lock and changes nothing, so it
//! works beside a running server, after a crash, and on a copy.

mod dump;
mod explain;
mod fields;
mod filter;
pub(crate) mod moment;
pub(crate) mod progress;
mod state;
mod verify;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use authority::TaskId;
use history::time_travel::TimeTravelError;
use ledger::{Error, ErrorKind, RecoveryError};

use crate::ledger_backend::{self, Place};

#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
It takes no lock and changes nothing: use it beside a running server, after a crash, or on a copy. What a running \
server has in hand is not shown; a last batch may be seen a moment before it is durable.

Examples:
  lessor log verify
  lessor log dump --type TaskDead --from 1h
  lessor log state --at 2030-01-31T12:00:00Z
  lessor log explain 019a8a3c-5b1e-7000-8000-0000000000aa
  lessor log --data backup/lessor verify --json
  lessor log --ledger postgres:postgres://lessor@db.example.com/lessor verify

Exit codes: 0 sound, 1 no answer, 2 wrong usage, 3 damaged, foreign, missing or of a newer version."
)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,

    /// The data directory of a server, or a copy of it
    #[arg(long, value_name = "DIR", default_value = ".lessor", env = "LESSOR_DATA", global = true)]
    data: PathBuf,

    /// The ledger, instead of --data: file:DIR, postgres:URL, or postgres: with the URL in LESSOR_POSTGRES_URL
    #[arg(long, value_name = "LEDGER", global = true)]
    ledger: Option<String>,

    /// Print JSON for scripts
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Check every segment, frame, record and snapshot, and that snapshots and log agree
    Verify(verify::Options),
    /// Print records as JSON, one to a line
    Dump(dump::Options),
    /// Show the state as it was at a position or a time
    State(state::Options),
    /// Tell what happened to a task, and why
    Explain(explain::Options),
}

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let reader = match &options.ledger {
        Some(text) => Place::parse(text).map_err(|fault| anyhow::anyhow!("--ledger: {fault}"))?.inspect()?,
        None => ledger_backend::inspect(&options.data)?,
    };
    let reader = &*reader;
    let done = |result: Result<()>| {
        result.map(|()| ExitCode::SUCCESS).map_err(|error| {
            if !is_refusal(&error) {
                return error;
            }
            error.context("the ledger cannot be read through; `lessor log verify` names all that is wrong")
        })
    };
    match &options.command {
        Command::Verify(_) => verify::run(reader, options.json),
        Command::Dump(dump) => done(dump::run(dump, reader)),
        Command::State(state) => done(state::run(state, reader, options.json)),
        Command::Explain(explain) => done(explain::run(explain, reader, options.json)),
    }
}

/// Whether the directory cannot be read as a ledger, rather than that it gives no answer.
pub(crate) fn is_refusal(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Error>().is_some_and(|error| !is_away(error))
        || error.is::<RecoveryError>()
        || matches!(error.downcast_ref(), Some(TimeTravelError::Recovery(_)))
}

/// Whether a database cannot be reached, which says nothing about its content.
fn is_away(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && error.downcast_ref::<ledger::postgres::Error>().is_some()
}

fn parse_task(text: &str) -> Result<TaskId, String> {
    server::parse_task_id(text)
        .ok_or_else(|| "a task's id looks like 019a8a3c-5b1e-7000-8000-0000000000aa".to_owned())
}
