//! An executor whose commands are counted. Nothing else changes.

use std::sync::Arc;

use prometheus::IntGauge;
use worker::Failure;
use worker::executors::{End, Executor, Ran, Run};

use super::Metrics;

pub(super) struct CountedExecutor {
    pub inner: Arc<dyn Executor>,
    pub metrics: Arc<Metrics>,
}

#[tonic::async_trait]
impl Executor for CountedExecutor {
    async fn execute(&self, run: Run) -> Result<Ran, Failure> {
        let _running = Running::new(&self.metrics.running);
        let ran = self.inner.execute(run).await;
        match &ran {
            Ok(ran) => {
                self.metrics.commands.with_label_values(&[end(ran.end)]).inc();
                self.metrics.command_time.observe(ran.run_time.as_secs_f64());
            }
            Err(_) => self.metrics.executor_failures.inc(),
        }
        ran
    }

    async fn clear(&self) -> Result<(), Failure> {
        self.inner.clear().await
    }
}

fn end(end: End) -> &'static str {
    match end {
        End::Exited(0) => "success",
        End::Exited(_) => "failure",
        End::TimedOut => "timeout",
        End::Cancelled => "cancelled",
        End::TooMuchOutput | End::OutOfMemory => "other",
    }
}

/// Counts a command also when its future is dropped.
struct Running<'a>(&'a IntGauge);

impl<'a> Running<'a> {
    fn new(gauge: &'a IntGauge) -> Running<'a> {
        gauge.inc();
        Running(gauge)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}
