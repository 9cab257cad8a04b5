//! The content of measured appends: the records of a real ledger, or bytes that cannot be compressed.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use authority::command::SubmitTask;
use ledger::{Position, file};
use tokio::task::JoinSet;

use crate::fixture;
use crate::in_process::InProcess;

/// A batch of a busy coordinator has many records.
const RANDOM_RECORD_BYTES: usize = 256;
/// Batches that differ. They are appended again and again.
const BATCHES: usize = 64;
/// Tasks that come and go at a time.
const CLIENTS: usize = 64;

#[derive(Clone, Copy, clap::ValueEnum)]
pub(super) enum Content {
    /// The records of tasks that were submitted, leased and completed
    Records,
    /// Random bytes, which cannot be compressed
    Random,
}

/// The records of one batch after the other, without an end.
pub(super) struct Batches {
    batches: Vec<Vec<Vec<u8>>>,
    used: usize,
}

impl Batches {
    pub(super) fn next(&mut self) -> impl Iterator<Item = &[u8]> {
        self.used += 1;
        self.batches[self.used % self.batches.len()].iter().map(Vec::as_slice)
    }
}

impl Content {
    pub(super) fn name(self) -> &'static str {
        match self {
            Content::Records => "records",
            Content::Random => "random",
        }
    }

    /// Batches of about this many bytes.
    pub(super) async fn batches(self, bytes: usize, below: &Path) -> Result<Batches> {
        let batches = match self {
            Content::Records => recorded(bytes, below).await?,
            Content::Random => vec![random(bytes)?.chunks(RANDOM_RECORD_BYTES).map(<[u8]>::to_vec).collect()],
        };
        Ok(Batches { batches, used: 0 })
    }
}

/// Runs cycles on a ledger in a directory, and cuts its records into batches.
async fn recorded(bytes: usize, below: &Path) -> Result<Vec<Vec<Vec<u8>>>> {
    let directory = fixture::directory(below)?;
    let data = directory.path().join("data");
    let running = fixture::start(&data, u64::MAX).await?;
    let bench = InProcess::new(running.handle.clone(), 0);
    let mut clients = JoinSet::new();
    // A cycle has three records of more than 32 bytes each.
    let cycles = (BATCHES + 1) * bytes / 96 / CLIENTS + 1;
    for client in 0..CLIENTS {
        let bench = bench.clone();
        clients.spawn(async move { run_cycles(&bench, client, cycles).await });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    running.stop().await?;
    let (storage, _) = file::open_data_dir(&data, file::Options::default())?;
    let mut batches = vec![Vec::new()];
    let mut batch_bytes = 0;
    storage.ledger.reader().read(Position(1), Position(u64::MAX), &mut |_, record| {
        batch_bytes += record.len();
        if batch_bytes > bytes {
            batch_bytes = record.len();
            batches.push(Vec::new());
        }
        if let Some(batch) = batches.last_mut() {
            batch.push(record.to_vec());
        }
        if batches.len() > BATCHES { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    ensure!(batches.len() > BATCHES, "the ledger has too few records for {BATCHES} batches of {bytes} bytes");
    batches.truncate(BATCHES);
    Ok(batches)
}

async fn run_cycles(bench: &InProcess, client: usize, cycles: usize) -> Result<()> {
    let worker = Arc::from(format!("worker-{client}"));
    for _ in 0..cycles {
        let task = bench.task();
        // Names and text repeat, ids do not.
        let payload = format!(
            "{{\"to\":\"user-{:x}@example.com\",\"template\":\"order-confirmation\",\"order\":\"{:032x}\"}}",
            task.id.0 as u32,
            task.id.0.rotate_left(64),
        );
        bench.handle().submit(SubmitTask { payload: payload.into_bytes().into(), ..task }).await?;
        let grant = bench.lease(&worker).await?;
        bench.complete(&worker, &grant).await?;
    }
    Ok(())
}

fn random(bytes: usize) -> Result<Vec<u8>> {
    let mut content = vec![0; bytes];
    getrandom::fill(&mut content).map_err(|error| anyhow!("no random numbers: {error}"))?;
    Ok(content)
}
