//! Measures operations per second, and the processor time of each operation in this process and in the server's. On a
//! shared machine the processor time says more than the rate.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result};

use super::http::Server;

/// The unit of the times in /proc, which is the same on every Linux.
const TICKS_PER_S: f64 = 100.0;

pub(crate) struct Rate {
    pub per_s: f64,
    /// Microseconds each, in this process.
    pub client_cpu_us: f64,
    /// Microseconds each, in the server's process; zero without one.
    pub server_cpu_us: f64,
}

/// A measurement that has started.
pub(crate) struct Measurement {
    at: Instant,
    count: Arc<AtomicU64>,
    server: Option<u32>,
    before: Sample,
}

struct Sample {
    count: u64,
    client_cpu_s: f64,
    server_cpu_s: f64,
}

impl Measurement {
    pub(crate) fn start(server: Option<&Server>, count: &Arc<AtomicU64>) -> Result<Measurement> {
        let server = server.map(Server::process).transpose()?;
        Ok(Measurement {
            at: Instant::now(),
            count: count.clone(),
            server,
            before: Sample::take(count, server)?,
        })
    }

    pub(crate) fn finish(self) -> Result<Rate> {
        let (seconds, after) = (self.at.elapsed().as_secs_f64(), Sample::take(&self.count, self.server)?);
        let count = (after.count - self.before.count) as f64;
        let each_us = |after: f64, before: f64| (after - before) * 1e6 / count.max(1.0);
        Ok(Rate {
            per_s: count / seconds,
            client_cpu_us: each_us(after.client_cpu_s, self.before.client_cpu_s),
            server_cpu_us: each_us(after.server_cpu_s, self.before.server_cpu_s),
        })
    }
}

impl Sample {
    fn take(count: &AtomicU64, server: Option<u32>) -> Result<Sample> {
        Ok(Sample {
            count: count.load(Ordering::Relaxed),
            client_cpu_s: cpu_s("self")?,
            server_cpu_s: server.map_or(Ok(0.0), |process| cpu_s(&process.to_string()))?,
        })
    }
}

/// The processor time of a process so far, in user and in system mode.
fn cpu_s(process: &str) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name of the program stands in brackets and may hold anything; the times are fields 14 and 15.
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let mut times = after_name.split_whitespace().skip(11).map(str::parse::<f64>);
    let mut next = || times.next().context("no processor times")?.context("a processor time is not a number");
    Ok((next()? + next()?) / TICKS_PER_S)
}
