//! Runs the steps of a command, announces and times each step, and stops at the first failure.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// Runs one named step and prints how long it took, whether or not it succeeded.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    println!("==> {name}");
    let started = Instant::now();
    let result = work();
    let outcome = if result.is_ok() { "ok" } else { "FAILED" };
    println!("<== {name}: {outcome} in {:.1} s", started.elapsed().as_secs_f64());
    result.with_context(|| format!("step `{name}`"))
}

/// Cargo of the toolchain that runs xtask, in the repository's root.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs a command with inherited output streams. A non-zero exit is an error that names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {}", render_command(command)))?;
    if !status.success() {
        bail!("{} ended with {status}", render_command(command));
    }
    Ok(())
}

/// The platform of the compiler.
pub(crate) fn host() -> Result<String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc names no host")
}

/// Runs a command and returns its standard output as text.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {}", render_command(command)))?;
    if !output.status.success() {
        bail!("{} ended with {}", render_command(command), output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} printed no UTF-8", render_command(command)))
}

/// Renders the command as a user would type it, for messages.
pub(crate) fn render_command(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let arguments = std::iter::once(program).chain(command.get_args());
    let arguments: Vec<_> = arguments.map(|argument| argument.to_string_lossy()).collect();
    format!("`{}`", arguments.join(" "))
}
