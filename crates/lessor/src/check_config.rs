//! `lessor check-config`: whether a file is right, and what it comes to.

use std::path::PathBuf;

use anyhow::Result;

use crate::config::Config;

#[derive(clap::Args)]
#[command(after_help = "Exit codes: 0 the file is right, 1 it cannot be read, 2 it is not right.")]
pub struct Options {
    /// The configuration, in TOML
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Print what is in effect as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let config = Config::read(&options.file)?;
    if options.json {
        anstream::println!("{}", serde_json::to_string(&config)?);
        return Ok(());
    }
    anstream::println!("{} is right. In effect, with the defaults:\n", options.file.display());
    anstream::print!("{}", toml::to_string(&config)?);
    config.warnings().for_each(|warning| anstream::eprintln!("\nNote: {warning}"));
    Ok(())
}
