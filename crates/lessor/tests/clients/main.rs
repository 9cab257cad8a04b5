//! Build clients that others wrote, against the real binary: Debian's Bazel, ccache and moon. A client that is missing
//! fails its test; `cargo xtask test` installs them.

mod bazel;
mod cached;
mod ccache;
mod executed;
mod fake_repositories;
mod killed;
mod ledger;
mod moon;
mod protected;
#[path = "../support/mod.rs"]
mod support;
mod workspace;

use std::process::{Command, Output};

/// Longest time that one command of a client may take on a slow machine, in the tests and in the long form of chaos.
const CLIENT_DEADLINE_SECONDS: [&str; 2] = ["240", "3600"];

/// A client's command that ends at the deadline, with nothing of the caller's settings that could change what it does.
fn client(program: &str, home: &std::path::Path) -> Command {
    let [short, long] = CLIENT_DEADLINE_SECONDS;
    let deadline = chaos::Plan::from_env("").unwrap().pick(short, long);
    let mut command = Command::new("timeout");
    command.args([deadline, program]).env("HOME", home);
    for (name, _) in std::env::vars() {
        if ["CCACHE_", "MOON_", "LESSOR_", "GIT_"].iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
}

/// The output of a command, which must have succeeded.
#[track_caller]
fn succeeded(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "it ended with {}:\n{text}", output.status);
    text
}
