//! `lessor run` against the real binary: what a command sees, what comes back, and what becomes of both when something
//! goes wrong.

mod commands;
mod faults;
mod files;
mod isolation;
mod selection;
#[path = "../support/mod.rs"]
mod support;

use std::path::Path;

use support::{Ran, Server};

/// Runs in a directory, with these options and a script for bash.
fn run(server: &Server, at: &Path, options: &[&str], script: &str) -> Ran {
    let output = command(server, at, options, script).output().unwrap();
    Ran::from(output)
}

fn command(server: &Server, at: &Path, options: &[&str], script: &str) -> std::process::Command {
    let mut command = server.command(&["run"]);
    command.args(options).args(["--", "bash", "-c", script]).current_dir(at);
    command
}
