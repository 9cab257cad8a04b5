//! `cargo xtask check`: format, clippy, tidy. The quick one comes first, so that a stray blank is not told
//! after minutes of compilation.

use std::path::Path;

use anyhow::Result;

use crate::steps::{cargo, run as run_command, step};
use crate::{tidy, tools};

pub fn run(root: &Path) -> Result<()> {
    step("toolchain", tools::ensure_rust_components)?;
    step("format", || run_command(cargo(root).args(["fmt", "--all", "--", "--check"])))?;
    step("tidy", || tidy::run(root))?;
    step("clippy", || {
        run_command(cargo(root).args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })
}
