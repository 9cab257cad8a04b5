//! `lessor tables`: rebuilds the SQL tables of a ledger in PostgreSQL, or compares them with it, while the cluster runs.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use ledger::postgres::{Database, Difference, Server, WhatDiffers, rebuild, verify};

use crate::config::postgres_server;
use crate::ledger_backend::Place;

#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples:
  lessor tables verify --ledger postgres:postgres://lessor@db.example.com/lessor
  lessor tables rebuild --ledger postgres:postgres://lessor@db.example.com/lessor

Exit codes: 0 the tables are what the ledger says, 1 no answer, 2 wrong usage, 3 they differ or lack records."
)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,

    /// The ledger: postgres:URL, or postgres: with the URL in LESSOR_POSTGRES_URL
    #[arg(long, value_name = "postgres:URL", default_value = "postgres:", value_parser = Place::parse, global = true)]
    ledger: Place,

    /// The shard of the ledger
    #[arg(long, value_name = "N", default_value_t = 0, global = true)]
    shard: u32,

    /// Content above this size is not in the tables; the setting of the server
    #[arg(long, value_name = "KIB", default_value_t = 16, global = true)]
    tables_payload_kib: u32,
}

#[derive(Clone, Copy, clap::Subcommand)]
enum Command {
    /// Write every row again, from the ledger
    Rebuild,
    /// Compare every row with the ledger
    Verify,
}

/// What differs, or is not there.
const DIFFERENT: u8 = 3;

pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let server = server(&options.ledger)?;
    let database = Database::for_tables(server, options.shard, options.tables_payload_kib)
        .map_err(ledger::Error::from)
        .context("cannot use the database")?;
    match options.command {
        Command::Rebuild => {
            let rebuilt = rebuild(&database).context("cannot rebuild the tables")?;
            anstream::println!(
                "Rebuilt {} jobs and {} attempts up to position {}; {} rows of unknown tasks were deleted",
                rebuilt.jobs,
                rebuilt.attempts,
                rebuilt.position,
                rebuilt.deleted
            );
            Ok(ExitCode::SUCCESS)
        }
        Command::Verify => {
            let verified = verify(&database).context("cannot compare the tables")?;
            verified.differences.iter().for_each(|difference| anstream::println!("{}", line(difference)));
            anstream::println!(
                "Compared {} jobs and {} attempts at position {}: {} differences",
                verified.jobs,
                verified.attempts,
                verified.position,
                verified.count
            );
            let lacks = verified.position < verified.ledger;
            if lacks {
                anstream::println!(
                    "The ledger is at position {}: the tables follow, are off, or need `lessor tables rebuild`",
                    verified.ledger
                );
            }
            Ok(if verified.count > 0 || lacks { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
        }
    }
}

fn line(difference: &Difference) -> String {
    let row = match difference.attempt {
        Some(attempt) => format!("attempt {attempt} of {}", difference.task),
        None => format!("job {}", difference.task),
    };
    match &difference.what {
        WhatDiffers::Missing => format!("{row}: has no row"),
        WhatDiffers::Unexpected => format!("{row}: has a row, but does not exist"),
        WhatDiffers::Columns(columns) => format!("{row}: differs in {}", columns.join(", ")),
    }
}

/// The database that `--ledger` names. What is in the tables can be rebuilt, so its settings do not matter.
fn server(ledger: &Place) -> Result<Server> {
    match ledger {
        Place::Postgres(url) => Ok(Server { unsafe_no_sync: true, ..postgres_server(url)? }),
        Place::File(_) => bail!("a ledger in files has no tables; --ledger is postgres:URL"),
    }
}
