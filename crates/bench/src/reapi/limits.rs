//! Measures the limits of the machine in the same run: syncs of the disk, no-op calls over the same stack, no-op
//! processes, and hashing on one core.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use blobs::{Digest, DigestFunction};

use super::super::{fdatasync, grpc};
use super::Trial;
use super::row::Row;

const NO_OP: &str = "/bin/true";
const NOOP_CLIENTS: [usize; 2] = [16, 64];
/// Hashed at once; more than fits into the nearest caches.
const HASHED_BYTES: usize = 16 << 20;

pub(super) async fn measure(trial: &Trial<'_>, directory: &Path) -> Result<Vec<Row>> {
    let row = |clients, name, value| Row::new("limits", clients, name, value);
    let syncs = fdatasync::measure(directory, trial.time)?;
    let mut rows = vec![row(1, "fdatasync_per_s", syncs.per_s).with("p50_ms", syncs.p50_ms)];
    for clients in NOOP_CLIENTS {
        let rate = grpc::noop(trial.server, clients, trial.time).await?;
        rows.push(row(clients, "noop_per_s", rate.per_s).costs(&rate));
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let time = trial.time;
    for threads in [1, cores] {
        let per_s = tokio::task::spawn_blocking(move || processes_per_s(threads, time)).await??;
        rows.push(row(threads, "processes_per_s", per_s));
    }
    let mb_per_s = tokio::task::spawn_blocking(move || hashed_mb_per_s(time)).await?;
    rows.push(row(1, "sha256_mb_per_s", mb_per_s));
    Ok(rows)
}

/// Processes that are started, one after the other on each thread, and waited for.
fn processes_per_s(threads: usize, time: Duration) -> Result<f64> {
    let began = Instant::now();
    let start = || -> Result<u64> {
        let mut count = 0;
        while began.elapsed() < time {
            let status = Command::new(NO_OP).env_clear().stdin(Stdio::null()).status();
            ensure!(status.context("cannot start a process")?.success(), "{NO_OP} failed");
            count += 1;
        }
        Ok(count)
    };
    let count = std::thread::scope(|scope| {
        let started: Vec<_> = (0..threads).map(|_| scope.spawn(start)).collect();
        let counts = started.into_iter().map(|thread| thread.join().expect("counting does not panic"));
        counts.sum::<Result<u64>>()
    })?;
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

fn hashed_mb_per_s(time: Duration) -> f64 {
    let content = vec![7; HASHED_BYTES];
    let (began, mut bytes) = (Instant::now(), 0);
    while began.elapsed() < time {
        std::hint::black_box(Digest::of(DigestFunction::Sha256, std::hint::black_box(&content)));
        bytes += HASHED_BYTES;
    }
    bytes as f64 / 1e6 / began.elapsed().as_secs_f64()
}
