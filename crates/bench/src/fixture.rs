//! The fixtures of benchmarks: a temporary directory, and a coordinator in this process.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use coordinator::Running;
use ledger::{ClusterId, file};

/// A directory of its own, removed when it is dropped.
pub(crate) fn directory(below: &Path) -> Result<tempfile::TempDir> {
    tempfile::Builder::new()
        .prefix("lessor-bench-")
        .tempdir_in(below)
        .with_context(|| format!("cannot make a directory in {}", below.display()))
}

/// Starts a coordinator, which takes a snapshot after this many bytes. Blocks while the ledger is replayed.
pub(crate) async fn start(data: &Path, snapshot_after_bytes: impl Into<Option<u64>>) -> Result<Running> {
    let default = coordinator::Options::default();
    let snapshot_after_bytes = snapshot_after_bytes.into().unwrap_or(default.snapshot_after_bytes);
    let (data, options) = (data.to_owned(), coordinator::Options { snapshot_after_bytes, ..default });
    tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let create = Some(ClusterId([0xbe; 16]));
        let ledger_options = file::Options { create, ..file::Options::default() };
        let (storage, _) = file::open_data_dir(&data, ledger_options).map_err(ledger::Error::from)?;
        let mut running = coordinator::start(storage, options)?;
        running.report.took = began.elapsed();
        Ok(running)
    })
    .await?
}
