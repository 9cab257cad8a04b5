//! `lessor check-config`: whether a file is right, and what it comes to.

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;

use crate::config::{Config, file};
use crate::worker::WorkerFile;

#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 the file is right, 1 it cannot be read, 2 it is not right.")]
pub struct Options {
    /// The configuration of a server or of a worker, in TOML
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print what is in effect as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let text = file::text(&options.file)?;
    // A worker's file is one that has anything to say to a worker; what cannot be read is refused as a server's.
    let is_workers = text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("worker"));
    if is_workers {
        return show(options, &file::read::<WorkerFile>(&options.file)?);
    }
    let config = Config::read(&options.file)?;
    show(options, &config)?;
    if !options.json {
        config.warnings().for_each(|warning| anstream::eprintln!("\nNote: {warning}"));
    }
    Ok(())
}

fn show(options: &Options, config: &impl Serialize) -> Result<()> {
    if options.json {
        anstream::println!("{}", serde_json::to_string(config)?);
        return Ok(());
    }
    anstream::println!("{} is right. In effect, with the defaults:\n", options.file.display());
    anstream::print!("{}", toml::to_string(config)?);
    Ok(())
}
