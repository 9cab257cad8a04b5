//! Sets up what a benchmark runs on: a temporary directory, and a coordinator in this process.

use std::path::Path;

use anyhow::{Context, Result};
use coordinator::{ClusterId, Options, Running};

/// A directory of its own, removed when it is dropped.
pub fn directory(below: &Path) -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("lessor-bench-")
        .tempdir_in(below)
        .with_context(|| format!("cannot make a directory in {}", below.display()))
}

pub fn options(directory: &Path) -> Options {
    let mut options = Options::new(directory);
    options.ledger.create = Some(ClusterId([0xbe; 16]));
    options
}

/// Blocks while the ledger is replayed.
pub async fn start(options: Options) -> Result<Running> {
    Ok(tokio::task::spawn_blocking(move || coordinator::start(options)).await??)
}
