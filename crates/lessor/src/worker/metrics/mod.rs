//! The Prometheus metrics of a worker (S3-58). Names of commands and digests never become labels (X20).

mod counted_executor;
mod endpoint;

use std::sync::Arc;

use anyhow::{Context, Result};
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, exponential_buckets,
};
use reapi_client::{ObservedCas, Traffic};
use worker::{Cas, Executor};

use counted_executor::CountedExecutor;
pub(super) use endpoint::serve;

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
        let gauge = |name: &str, help: &str| register(&registry, IntGauge::new(name, help));
        let counter = |name: &str, help: &str| register(&registry, IntCounter::new(name, help));
        let commands = Opts::new("lessor_worker_commands_total", "Commands that ended, by how.");
        let command_time =
            HistogramOpts::new("lessor_worker_command_time_seconds", "Time that commands ran.");
        // From a millisecond to about nine hours.
        let command_time = command_time.buckets(exponential_buckets(0.001, 4.0, 13)?);
        gauge("lessor_worker_slots", "Commands that may run at once.")?
            .set(i64::try_from(slots).unwrap_or(i64::MAX));
        let metrics = Metrics {
            running: gauge("lessor_worker_running_commands", "Commands that run.")?,
            commands: register(&registry, IntCounterVec::new(commands, &["end"]))?,
            command_time: register(&registry, Histogram::with_opts(command_time))?,
            executor_failures: counter(
                "lessor_worker_executor_failures_total",
                "Commands that the worker itself could not run.",
            )?,
            downloaded: counter(
                "lessor_worker_downloaded_bytes_total",
                "Bytes of blobs that came from the content store.",
            )?,
            uploaded: counter(
                "lessor_worker_uploaded_bytes_total",
                "Bytes of blobs that went to the content store.",
            )?,
            content_failures: counter(
                "lessor_worker_content_failures_total",
                "Calls to the content store that failed, after all repeats.",
            )?,
            registry,
        };
        for end in ENDS {
            metrics.commands.with_label_values(&[end]);
        }
        Ok(Arc::new(metrics))
    }

    pub(super) fn executor(self: &Arc<Metrics>, inner: Arc<dyn Executor>) -> Arc<dyn Executor> {
        Arc::new(CountedExecutor { inner, metrics: self.clone() })
    }

    pub(super) fn cas(self: &Arc<Metrics>, inner: Arc<dyn Cas>) -> Arc<dyn Cas> {
        let metrics = self.clone();
        let observe = move |traffic| match traffic {
            Traffic::DownloadedBytes(bytes) => metrics.downloaded.inc_by(bytes),
            Traffic::UploadedBytes(bytes) => metrics.uploaded.inc_by(bytes),
            Traffic::Failed => metrics.content_failures.inc(),
        };
        Arc::new(ObservedCas { inner, observe })
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
