//! `cargo xtask check`: format, tidy, advisories, the bill of materials, clippy. The quick checks come first, so that a misplaced blank is reported
//! before minutes of compilation.

use std::path::Path;

use anyhow::Result;

use crate::steps::{cargo, run as run_command, step};
use crate::{advisories, sbom, tidy, tools};

pub(crate) fn run(root: &Path) -> Result<()> {
    step("toolchain", tools::ensure_rust_components)?;
    step("format", || run_command(cargo(root).args(["fmt", "--all", "--", "--check"])))?;
    step("tidy", || tidy::run(root))?;
    step("advisories", || advisories::run(root))?;
    step("sbom", || sbom::check(root))?;
    step("clippy", || {
        run_command(cargo(root).args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    })
}
