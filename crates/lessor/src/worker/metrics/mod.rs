//! Figures of a worker, as Prometheus reads them (S3-58). What commands and digests are called never becomes a label (X20).

mod counted;
mod endpoint;

use std::sync::Arc;

use anyhow::{Context, Result};
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, exponential_buckets,
};
use worker::{Cas, Executor};

use counted::{CountedCas, CountedExecutor};
pub(super) use endpoint::serve;

/// How a command can end.
const ENDS: [&str; 5] = ["success", "failure", "timeout", "cancelled", "other"];

pub(super) struct Metrics {
    registry: Registry,
    running: IntGauge,
    commands: IntCounterVec,
    command_time: Histogram,
    executor_failures: IntCounter,
    downloaded: IntCounter,
    uploaded: IntCounter,
    content_failures: IntCounter,
}

impl Metrics {
    pub(super) fn new(slots: usize) -> Result<Arc<Metrics>> {
        let registry = Registry::new();
        // From a millisecond to about nine hours.
        let buckets = exponential_buckets(0.001, 4.0, 13)?;
        let time = "Time that commands ran.";
        let commands = Opts::new("lessor_worker_commands_total", "Commands that ended, by how.");
        let metrics = Metrics {
            running: register(
                &registry,
                IntGauge::new("lessor_worker_running_commands", "Commands that run."),
            )?,
            commands: register(&registry, IntCounterVec::new(commands, &["end"]))?,
            command_time: register(
                &registry,
                Histogram::with_opts(
                    HistogramOpts::new("lessor_worker_command_time_seconds", time).buckets(buckets),
                ),
            )?,
            executor_failures: register(
                &registry,
                IntCounter::new(
                    "lessor_worker_executor_failures_total",
                    "Commands that the worker itself could not run.",
                ),
            )?,
            downloaded: register(
                &registry,
                IntCounter::new(
                    "lessor_worker_downloaded_bytes_total",
                    "Bytes of blobs that came from the content store.",
                ),
            )?,
            uploaded: register(
                &registry,
                IntCounter::new(
                    "lessor_worker_uploaded_bytes_total",
                    "Bytes of blobs that went to the content store.",
                ),
            )?,
            content_failures: register(
                &registry,
                IntCounter::new(
                    "lessor_worker_content_failures_total",
                    "Calls to the content store that failed, after all repeats.",
                ),
            )?,
            registry,
        };
        let free = register(
            &metrics.registry,
            IntGauge::new("lessor_worker_slots", "Commands that may run at once."),
        )?;
        free.set(i64::try_from(slots).unwrap_or(i64::MAX));
        for end in ENDS {
            metrics.commands.with_label_values(&[end]);
        }
        Ok(Arc::new(metrics))
    }

    /// The same executor, with its commands counted.
    pub(super) fn executor(self: &Arc<Metrics>, inner: Arc<dyn Executor>) -> Arc<dyn Executor> {
        Arc::new(CountedExecutor { inner, metrics: self.clone() })
    }

    /// The same store, with its bytes counted.
    pub(super) fn cas(self: &Arc<Metrics>, inner: Arc<dyn Cas>) -> Arc<dyn Cas> {
        Arc::new(CountedCas { inner, metrics: self.clone() })
    }

    fn text(&self) -> Result<String> {
        prometheus::TextEncoder::new()
            .encode_to_string(&self.registry.gather())
            .context("the metrics cannot be written")
    }
}

fn register<M: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<M>) -> Result<M> {
    let made = made?;
    registry.register(Box::new(made.clone()))?;
    Ok(made)
}
