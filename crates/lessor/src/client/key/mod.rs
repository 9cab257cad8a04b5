//! `lessor key`: create, list and revoke API keys.

mod admin;
mod create;
mod list;
mod revoke;

use std::process::ExitCode;

use anyhow::Result;
use lessor_sdk::protocol::Url;

use super::connection::{CredentialOptions, parse_url};
use admin::Admin;

#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Needs an admin key, by --api-key-file or in LESSOR_API_KEY. `lessor init` creates the first one. docs/security.md has the roles."
)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,

    /// Print one JSON document instead of text for people; points in time are in RFC 3339
    #[arg(long, global = true)]
    json: bool,

    /// The server to talk to
    #[arg(long, global = true, help_heading = "Server", value_name = "URL", env = "LESSOR_URL")]
    #[arg(default_value = "http://127.0.0.1:8980", value_parser = parse_url)]
    url: Url,

    #[command(flatten)]
    credentials: CredentialOptions,
}

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Create a key; its secret is shown once
    Create(create::Options),
    /// List the keys, without their secrets
    List(list::Options),
    /// Revoke a key, by its name or id
    Revoke(revoke::Options),
}

pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    let admin = Admin::new(&options.url, options.credentials.clone())?;
    match &options.command {
        Command::Create(create) => create::run(create, &admin, options.json).await,
        Command::List(_) => list::run(&admin, options.json).await,
        Command::Revoke(revoke) => revoke::run(revoke, &admin, options.json).await,
    }?;
    Ok(ExitCode::SUCCESS)
}
