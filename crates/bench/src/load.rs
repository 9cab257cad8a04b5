//! Generates load: many clients at once, and the rate of the operations that they complete, with the processor time of
//! each operation in this process and in the server's. On a shared machine the processor time says more than the rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use procfs::process::Process;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::process::{context_switches, cpu_s};

/// Before the count begins, so that connections, caches and the queue have settled.
pub(crate) const WARM_UP: Duration = Duration::from_millis(500);
/// Tasks that may be submitted and not complete, for each client that submits: enough that no worker waits for one.
const OPEN_TASKS_PER_CLIENT: usize = 4;
/// On a stalled machine nothing may be completed in the time; it is then measured again, up to this often in all.
const MAX_PERIODS: usize = 10;

/// Clients that run until the measurement is over.
pub(crate) struct LoadGenerator {
    pub clients: JoinSet<Result<()>>,
    pub done: Arc<AtomicU64>,
    /// Permits for tasks that are submitted and not complete.
    pub open_tasks: Arc<Semaphore>,
}

pub(crate) struct Rate {
    pub per_s: f64,
    /// Microseconds each, in this process.
    pub client_cpu_us: f64,
    /// Microseconds each, in the server's process; zero without one.
    pub server_cpu_us: f64,
    /// Context switches each, in the server's process.
    pub server_switches: f64,
}

struct Sample {
    at: Instant,
    count: u64,
    client_cpu_s: f64,
    server_cpu_s: f64,
    server_switches: u64,
}

impl LoadGenerator {
    pub(crate) fn new(clients: usize) -> LoadGenerator {
        LoadGenerator {
            clients: JoinSet::new(),
            done: Arc::new(AtomicU64::new(0)),
            open_tasks: Arc::new(Semaphore::new(clients * OPEN_TASKS_PER_CLIENT)),
        }
    }

    /// Counts the operations between the end of the warm-up and the end of the time. A client that fails ends the
    /// measurement.
    pub(crate) async fn measure(mut self, server: Option<Process>, time: Duration) -> Result<Rate> {
        let this = Process::myself()?;
        let sample = || {
            Ok::<_, anyhow::Error>(Sample {
                at: Instant::now(),
                count: self.done.load(Ordering::Relaxed),
                client_cpu_s: cpu_s(&this)?,
                server_cpu_s: server.as_ref().map_or(Ok(0.0), cpu_s)?,
                server_switches: server.as_ref().map_or(Ok(0), context_switches)?,
            })
        };
        tokio::time::sleep(WARM_UP).await;
        let before = sample()?;
        let mut after = sample()?;
        for _ in 0..MAX_PERIODS {
            tokio::select! {
                () = tokio::time::sleep(time) => {}
                ended = self.clients.join_next() => ended.context("there are no clients")???,
            }
            after = sample()?;
            if after.count > before.count {
                break;
            }
        }
        ensure!(after.count > before.count, "nothing was completed in {:.1?}", after.at - before.at);
        self.clients.shutdown().await;
        let count = (after.count - before.count) as f64;
        let each_us = |after: f64, before: f64| (after - before) * 1e6 / count;
        Ok(Rate {
            per_s: count / (after.at - before.at).as_secs_f64(),
            client_cpu_us: each_us(after.client_cpu_s, before.client_cpu_s),
            server_cpu_us: each_us(after.server_cpu_s, before.server_cpu_s),
            // A thread that has ended takes its count with it.
            server_switches: after.server_switches.saturating_sub(before.server_switches) as f64 / count,
        })
    }
}
