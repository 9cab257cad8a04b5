//! Uploads to the content server. Content is stored here first, where it is compared with its digest, and then sent to the
//! server, so that a call which fails on the way can be repeated.

use blobs::{BlobWriter, Blobs, BoxFuture, Digest, Error, Expect, Progress, Result, Tenant};
use bytes::Bytes;
use execution::digest::resource_path;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use wire::bytestream::WriteRequest;

use super::ContentServer;
use crate::retry::retried;
use crate::stream::{PIECES_AHEAD, upload_id};
use crate::{CasError, Client};

pub(super) struct ForwardingWriter {
    pub server: ContentServer,
    pub tenant: Tenant,
    pub expect: Expect,
    pub writer: Box<dyn BlobWriter>,
}

impl BlobWriter for ForwardingWriter {
    fn committed(&self) -> u64 {
        self.writer.committed()
    }

    fn write(&mut self, offset: u64, piece: Bytes) -> BoxFuture<'_, Result<Progress>> {
        Box::pin(async move {
            let progress = self.writer.write(offset, piece).await?;
            if progress == Progress::Present {
                self.server.push_expected(&self.tenant, self.expect).await?;
            }
            Ok(progress)
        })
    }

    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Digest>> {
        Box::pin(async move {
            let ForwardingWriter { server, tenant, writer, .. } = *self;
            let digest = writer.finish().await?;
            server.push(&tenant, digest).await?;
            Ok(digest)
        })
    }

    fn leave(self: Box<Self>) -> BoxFuture<'static, Result<u64>> {
        self.writer.leave()
    }
}

impl ContentServer {
    /// Sends a blob that is in the local store to the server.
    pub(super) async fn push(&self, tenant: &Tenant, digest: Digest) -> Result<()> {
        if digest.is_empty_blob() {
            return Ok(());
        }
        let _pinned = self.local().pin(tenant, &[digest]);
        if digest.size <= self.max_batched_bytes().await? {
            let content = self.local().get_many(tenant, &[digest]).await.pop();
            let content = content.unwrap_or(Err(Error::NotFound(digest)))?;
            return self.send_batch(tenant, &[(digest, content)]).await.pop().unwrap_or(Ok(()));
        }
        let streams = self.streams(tenant)?;
        let pushed = retried(streams.patience, || self.send_stream(&streams, tenant, digest)).await;
        pushed.map_err(|error| self.failed(error))
    }

    /// Sends a blob that is in the local store, and of which this much is known, to the server.
    pub(super) async fn push_expected(&self, tenant: &Tenant, expect: Expect) -> Result<()> {
        let digest = match expect {
            Expect::Digest(digest) => Some(digest),
            Expect::Hash(function, hash) => self.local().find(tenant, function, hash).await?,
            // Nothing is known to be present before its content has come.
            Expect::Anything(_) => None,
        };
        match digest {
            Some(digest) if self.has(tenant, &digest).await? => Ok(()),
            Some(digest) => self.push(tenant, digest).await,
            None => Err(Error::Unavailable("the blob was evicted meanwhile; send it again".into())),
        }
    }

    async fn send_stream(
        &self,
        streams: &Client,
        tenant: &Tenant,
        digest: Digest,
    ) -> std::result::Result<(), CasError> {
        let from_local = |error: Error| CasError::File(error.to_string());
        let mut reader = self.local().read(tenant, digest, 0, None).await.map_err(from_local)?;
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let sending = async move {
            let mut name = format!("uploads/{}/blobs/{}", upload_id(), resource_path(&digest));
            let mut offset = 0_u64;
            while let Some(data) = reader.next().await? {
                let (write_offset, resource_name) = (offset, std::mem::take(&mut name));
                offset += data.len() as u64;
                let write_offset = i64::try_from(write_offset).unwrap_or(i64::MAX);
                let finish_write = offset == digest.size;
                let piece = WriteRequest { resource_name, write_offset, finish_write, data };
                // A server that has the blob already need not take the rest.
                if sender.send(piece).await.is_err() {
                    break;
                }
            }
            Ok::<_, Error>(())
        };
        let mut stub = streams.byte_stream();
        let (answer, sent) = tokio::join!(stub.write(ReceiverStream::new(receiver)), sending);
        let committed = answer?.into_inner().committed_size;
        if u64::try_from(committed) == Ok(digest.size) {
            return Ok(());
        }
        sent.map_err(from_local)?;
        Err(Status::aborted(format!("{committed} of {} bytes were taken", digest.size)).into())
    }

    /// Sends blobs of a size for batches whose content was verified, with an answer for each in order.
    pub(super) async fn send_batch(&self, tenant: &Tenant, blobs: &[(Digest, Bytes)]) -> Vec<Result<()>> {
        let sent = match self.calls(tenant) {
            Ok(calls) => calls.upload_each("", blobs).await.map_err(|error| self.failed(error)),
            Err(error) => Err(error),
        };
        match sent {
            Ok(answers) => answers
                .into_iter()
                .map(|answer| answer.map_err(|status| self.failed(status.into())))
                .collect(),
            Err(error) => vec![Err(error); blobs.len()],
        }
    }

    /// Stores whole blobs, an answer for each in order.
    pub(super) async fn put_all(&self, tenant: &Tenant, blobs: Vec<(Digest, Bytes)>) -> Vec<Result<()>> {
        let max_batched = match self.max_batched_bytes().await {
            Ok(max_batched) => max_batched,
            Err(error) => return vec![Err(error); blobs.len()],
        };
        let mut answers: Vec<Result<()>> = Vec::with_capacity(blobs.len());
        let mut batch: Vec<(usize, (Digest, Bytes))> = Vec::new();
        for (at, (digest, content)) in blobs.into_iter().enumerate() {
            let actual = Digest::of(digest.function, &content);
            answers.push(if actual != digest {
                Err(Error::Mismatch { expected: digest, actual })
            } else if digest.is_empty_blob() {
                Ok(())
            } else if digest.size > max_batched {
                let stored = self.local().put_many(tenant, vec![(digest, content)]).await.pop();
                match stored.unwrap_or(Ok(())) {
                    Ok(()) => self.push(tenant, digest).await,
                    Err(error) => Err(error),
                }
            } else {
                batch.push((at, (digest, content)));
                Ok(())
            });
        }
        for function in blobs::DigestFunction::ALL {
            let of_function: Vec<_> =
                batch.iter().filter(|(_, (digest, _))| digest.function == function).collect();
            if of_function.is_empty() {
                continue;
            }
            let contents: Vec<(Digest, Bytes)> = of_function.iter().map(|(_, blob)| blob.clone()).collect();
            let sent = self.send_batch(tenant, &contents).await;
            for ((at, _), answer) in of_function.into_iter().zip(sent) {
                answers[*at] = answer;
            }
        }
        answers
    }
}
