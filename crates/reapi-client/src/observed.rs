//! A content store whose traffic is observed. Nothing else changes.

use std::fs::File;
use std::sync::Arc;

use blobs::Digest;
use bytes::Bytes;

use crate::{Cas, CasError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    DownloadedBytes(u64),
    UploadedBytes(u64),
    Failed,
}

pub struct ObservedCas<F> {
    pub inner: Arc<dyn Cas>,
    pub observe: F,
}

impl<F: Fn(Traffic)> ObservedCas<F> {
    fn observed<T>(
        &self,
        call: Result<T, CasError>,
        traffic: impl FnOnce(&T) -> Traffic,
    ) -> Result<T, CasError> {
        (self.observe)(call.as_ref().map_or(Traffic::Failed, traffic));
        call
    }
}

#[tonic::async_trait]
impl<F: Fn(Traffic) + Send + Sync + 'static> Cas for ObservedCas<F> {
    async fn find_missing(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Digest>, CasError> {
        let missing = self.inner.find_missing(instance, digests).await;
        missing.inspect_err(|_| (self.observe)(Traffic::Failed))
    }

    async fn read_many(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Option<Bytes>>, CasError> {
        self.observed(self.inner.read_many(instance, digests).await, |contents| {
            Traffic::DownloadedBytes(contents.iter().flatten().map(|content| content.len() as u64).sum())
        })
    }

    async fn read_to_file(&self, instance: &str, digest: &Digest, file: File) -> Result<bool, CasError> {
        let read = self.inner.read_to_file(instance, digest, file).await;
        self.observed(read, |is_found| Traffic::DownloadedBytes(if *is_found { digest.size } else { 0 }))
    }

    async fn upload_many(&self, instance: &str, blobs: Vec<(Digest, Bytes)>) -> Result<(), CasError> {
        let bytes = blobs.iter().map(|(digest, _)| digest.size).sum();
        self.observed(self.inner.upload_many(instance, blobs).await, |()| Traffic::UploadedBytes(bytes))
    }

    async fn upload_file(&self, instance: &str, digest: &Digest, file: File) -> Result<(), CasError> {
        let uploaded = self.inner.upload_file(instance, digest, file).await;
        self.observed(uploaded, |()| Traffic::UploadedBytes(digest.size))
    }
}
