//! An executor and a content store whose work is counted. They change nothing else.

use std::fs::File;
use std::sync::Arc;

use blobs::Digest;
use bytes::Bytes;
use prometheus::{IntCounter, IntGauge};
use worker::cas::CasError;
use worker::executors::{End, Executor, Ran, Run};
use worker::{Cas, Failure};

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
    if end == End::Exited(0) {
        "success"
    } else if matches!(end, End::Exited(_)) {
        "failure"
    } else if end == End::TimedOut {
        "timeout"
    } else if end == End::Cancelled {
        "cancelled"
    } else {
        "other"
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

pub(super) struct CountedCas {
    pub inner: Arc<dyn Cas>,
    pub metrics: Arc<Metrics>,
}

impl CountedCas {
    fn note<T>(
        &self,
        answer: Result<T, CasError>,
        bytes: impl FnOnce(&T) -> u64,
        to: &IntCounter,
    ) -> Result<T, CasError> {
        match &answer {
            Ok(answer) => to.inc_by(bytes(answer)),
            Err(_) => self.metrics.content_failures.inc(),
        }
        answer
    }
}

#[tonic::async_trait]
impl Cas for CountedCas {
    async fn find_missing(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Digest>, CasError> {
        let missing = self.inner.find_missing(instance, digests).await;
        self.note(missing, |_| 0, &self.metrics.downloaded)
    }

    async fn read_many(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Option<Bytes>>, CasError> {
        let read = self.inner.read_many(instance, digests).await;
        let bytes =
            |read: &Vec<Option<Bytes>>| read.iter().flatten().map(|content| content.len() as u64).sum();
        self.note(read, bytes, &self.metrics.downloaded)
    }

    async fn read_to_file(&self, instance: &str, digest: &Digest, file: File) -> Result<bool, CasError> {
        let read = self.inner.read_to_file(instance, digest, file).await;
        self.note(read, |found| if *found { digest.size } else { 0 }, &self.metrics.downloaded)
    }

    async fn upload_many(&self, instance: &str, blobs: Vec<(Digest, Bytes)>) -> Result<(), CasError> {
        let bytes = blobs.iter().map(|(digest, _)| digest.size).sum();
        let uploaded = self.inner.upload_many(instance, blobs).await;
        self.note(uploaded, |()| bytes, &self.metrics.uploaded)
    }

    async fn upload_file(&self, instance: &str, digest: &Digest, file: File) -> Result<(), CasError> {
        let uploaded = self.inner.upload_file(instance, digest, file).await;
        self.note(uploaded, |()| digest.size, &self.metrics.uploaded)
    }
}
