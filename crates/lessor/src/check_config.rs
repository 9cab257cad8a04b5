//! `lessor check-config`: validates a configuration file and prints the settings in effect.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use crate::config::{Config, file};
use crate::worker::WorkerFile;

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 the file is valid, 1 the file cannot be read, 2 the file is not valid."
)]
pub(crate) struct Options {
    /// The configuration of a server or of a worker, in TOML
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print the settings in effect as JSON
    #[arg(long)]
    pub json: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let text = file::text(&options.file)?;
    // A file with a table `worker` is a worker's file. A file that is not TOML is refused as a server's.
    let is_workers = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("worker"));
    if is_workers {
        return print(options, &file::read::<WorkerFile>(&options.file)?);
    }
    let config = Config::read(&options.file)?;
    print(options, &config)?;
    if !options.json {
        config.warnings().for_each(|warning| anstream::eprintln!("\nNote: {warning}"));
    }
    Ok(())
}

fn print(options: &Options, config: &impl Serialize) -> Result<()> {
    if options.json {
        anstream::println!("{}", serde_json::to_string(config)?);
        return Ok(());
    }
    anstream::println!("{} is valid. In effect, with the defaults:\n", options.file.display());
    anstream::print!("{}", toml::to_string(config)?);
    Ok(())
}
