//! `cargo xtask docs`: builds the API documentation of our own crates.

use std::path::Path;

use anyhow::Result;

use crate::steps::{cargo, run as run_command, step};

pub(crate) fn run(root: &Path) -> Result<()> {
    step("docs", || {
        run_command(
            cargo(root)
                .args(["doc", "--workspace", "--no-deps", "--document-private-items"])
                .env("RUSTDOCFLAGS", "-D warnings"),
        )
    })?;
    println!("open target/doc/lessor/index.html");
    Ok(())
}
