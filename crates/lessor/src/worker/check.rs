//! `lessor worker check`: checks whether a worker could work here, without starting one (S3-61).

use std::process::ExitCode;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use serde_json::json;
use worker::executors::Check;

use super::settings::{Flags, Settings};
use crate::client::show::{Cell, Output, Table};
use crate::exit;

/// How long the content store may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
#[command(
    after_help = "Takes the flags and the file of `lessor worker daemon`, and leaves nothing but the work directory.\n\
    Exit codes: 0 all is well, 1 something is not, 2 the file is not right."
)]
pub(super) struct Options {
    #[command(flatten)]
    flags: Flags,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(options: Options) -> Result<ExitCode> {
    let settings = Settings::without_writing(options.flags.worker()?)?.with_credentials()?;
    let cas = settings.cas(Some(PATIENCE))?;
    let checks = worker::check::check(&settings.config, &settings.executor, &*cas).await;
    let is_well = checks.iter().all(|check| check.result.is_ok());
    let mut output = Output::new();
    if options.json {
        output.line(to_json(&checks, is_well))?
    } else {
        output.print(table(&checks))?
    }
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}

fn to_json(checks: &[Check], is_well: bool) -> serde_json::Value {
    let check = |check: &Check| {
        let (Ok(detail) | Err(detail)) = &check.result;
        json!({"name": check.name, "ok": check.result.is_ok(), "detail": detail})
    };
    json!({"ok": is_well, "checks": checks.iter().map(check).collect::<Vec<_>>()})
}

fn table(checks: &[Check]) -> Table {
    let mut table = Table::new(&["CHECK", "", "FOUND"]);
    for check in checks {
        let (word, colour) = match check.result {
            Ok(_) => ("ok", AnsiColor::Green),
            Err(_) => ("FAILED", AnsiColor::Red),
        };
        let (Ok(detail) | Err(detail)) = &check.result;
        let word = Cell::styled(word, Style::new().fg_color(Some(colour.into())));
        table.row([Cell::text(check.name), word, Cell::text(detail)]);
    }
    table
}
