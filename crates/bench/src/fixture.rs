//! Sets up what a benchmark runs on: a temporary directory, and a coordinator in this process.

use std::path::{Path, PathBuf};
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

/// The data directory of a coordinator, and how often it takes a snapshot.
pub(crate) struct Options {
    data: PathBuf,
    pub snapshot_after_bytes: u64,
}

pub(crate) fn options(data: &Path) -> Options {
    let snapshot_after_bytes = coordinator::Options::default().snapshot_after_bytes;
    Options { data: data.to_owned(), snapshot_after_bytes }
}

/// Blocks while the ledger is replayed.
pub(crate) async fn start(options: Options) -> Result<Running> {
    tokio::task::spawn_blocking(move || {
        let began = Instant::now();
        let create = Some(ClusterId([0xbe; 16]));
        let ledger_options = file::Options { create, ..file::Options::default() };
        let (storage, _) = file::open_data_dir(&options.data, ledger_options)?;
        let snapshot_after_bytes = options.snapshot_after_bytes;
        let options = coordinator::Options { snapshot_after_bytes, ..coordinator::Options::default() };
        let mut running = coordinator::start(storage, options)?;
        running.report.took = began.elapsed();
        Ok(running)
    })
    .await?
}
