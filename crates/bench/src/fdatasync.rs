//! Measures the limit of the disk: one writer of 4 KiB blocks into a preallocated file, one sync for each block.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::percentiles::Percentiles;

const BLOCK_BYTES: usize = 4_096;
const FILE_BYTES: usize = 16 << 20;

pub(crate) struct Syncs {
    pub per_s: f64,
    pub p50_ms: f64,
}

pub(crate) fn measure(directory: &Path, time: Duration) -> Result<Syncs> {
    let path = directory.join("fdatasync");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .context("cannot create a file")?;
    file.write_all_at(&vec![0; FILE_BYTES], 0)?;
    file.sync_all()?;
    let block = [7; BLOCK_BYTES];
    let mut times = Vec::new();
    let began = Instant::now();
    while began.elapsed() < time {
        let offset = (times.len() * BLOCK_BYTES % FILE_BYTES) as u64;
        let before = Instant::now();
        file.write_all_at(&block, offset)?;
        file.sync_data()?;
        times.push(before.elapsed());
    }
    let per_s = times.len() as f64 / began.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(Syncs { per_s, p50_ms: Percentiles::of(times).at_ms(50.0) })
}
