//! A content store client that counts the bytes and calls of downloads.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use blobs::Digest;
use bytes::Bytes;
use worker::Cas;
use worker::cas::{CasError, GrpcCas};

pub(super) struct CountingCas {
    inner: GrpcCas,
    bytes: AtomicU64,
    calls: AtomicU64,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Fetched {
    pub bytes: u64,
    pub calls: u64,
}

impl CountingCas {
    pub(super) fn new(inner: GrpcCas) -> CountingCas {
        CountingCas { inner, bytes: AtomicU64::new(0), calls: AtomicU64::new(0) }
    }

    pub(super) fn fetched(&self) -> Fetched {
        Fetched { bytes: self.bytes.load(Ordering::Relaxed), calls: self.calls.load(Ordering::Relaxed) }
    }

    fn count(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

#[tonic::async_trait]
impl Cas for CountingCas {
    async fn find_missing(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Digest>, CasError> {
        self.inner.find_missing(instance, digests).await
    }

    async fn read_many(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Option<Bytes>>, CasError> {
        let read = self.inner.read_many(instance, digests).await?;
        self.count(read.iter().flatten().map(|content| content.len() as u64).sum());
        Ok(read)
    }

    async fn read_to_file(&self, instance: &str, digest: &Digest, file: File) -> Result<bool, CasError> {
        self.count(digest.size);
        self.inner.read_to_file(instance, digest, file).await
    }

    async fn upload_many(&self, instance: &str, blobs: Vec<(Digest, Bytes)>) -> Result<(), CasError> {
        self.inner.upload_many(instance, blobs).await
    }

    async fn upload_file(&self, instance: &str, digest: &Digest, file: File) -> Result<(), CasError> {
        self.inner.upload_file(instance, digest, file).await
    }
}
