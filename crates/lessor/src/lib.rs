//! The commands of the `lessor` binary. A library only so that the fuzz targets reach the decoders of its files.

mod address;
mod admin_key;
mod audit;
mod banner;
mod check_config;
mod cli;
mod client;
mod cluster;
mod cluster_key;
mod config;
mod conformance;
mod content;
mod data_dir;
mod exit;
#[doc(hidden)]
pub mod fuzzing;
mod init;
mod ledger_backend;
mod log;
mod logging;
mod machine;
mod migrate;
mod node;
mod node_command;
mod nodes;
mod replacement;
mod run;
mod serve;
mod server_coordinator;
mod serving;
mod stop_signals;
mod tables;
mod up;
mod worker;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};

/// Parses the command line and runs one command.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Up(options) => up::run(options).map(|()| ExitCode::SUCCESS),
        Command::Serve(options) => serve::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Init(options) => init::run(&options).map(|()| ExitCode::SUCCESS),
        Command::CheckConfig(options) => check_config::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Worker(options) => worker::run(options),
        Command::Run(options) => run::run(*options),
        Command::Submit(options) => client::block_on(client::submit::run(&options)),
        Command::Task(options) => client::block_on(client::task::run(&options)),
        Command::Queue(options) => client::block_on(client::queue::run(&options)),
        Command::Key(options) => client::block_on(client::key::run(&options)),
        Command::Audit(options) => audit::run(&options),
        Command::Cluster(options) => cluster::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Nodes(options) => nodes::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Node(options) => node_command::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Migrate(options) => migrate::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Log(options) => log::run(&options),
        Command::Tables(options) => tables::run(&options),
        Command::Bench(options) => bench::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Conformance(options) => client::block_on(conformance::run(&options)),
    };
    match result {
        Ok(code) => code,
        Err(error) => exit::report(&error),
    }
}
