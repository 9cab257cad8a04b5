//! Reads a large blob of the content server, keeps a copy, and holds the last piece back until the whole content was
//! compared with its digest.

use std::ops::Range;
use std::time::Instant;

use blobs::{
    Begun, BlobReader, BlobWriter, Blobs, BoxFuture, Digest, Error, Expect, Hasher, Result, Tenant,
    UploadRequest,
};
use bytes::Bytes;
use execution::digest::resource_path;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};
use wire::bytestream::{ReadRequest, ReadResponse};

use super::ContentServer;
use crate::retry::{is_retryable, retried};
use crate::stream::MAX_PAUSE;
use crate::{CasError, Client};

/// A piece of content that is here.
pub(super) struct Slice(Option<Bytes>);

impl Slice {
    pub(super) fn new(content: Bytes) -> Slice {
        Slice(Some(content).filter(|content| !content.is_empty()))
    }
}

impl BlobReader for Slice {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async { Ok(self.0.take()) })
    }
}

pub(super) struct VerifyingReader {
    server: ContentServer,
    streams: Client,
    digest: Digest,
    pieces: Streaming<ReadResponse>,
    received: u64,
    /// Since when nothing has come.
    silent_since: Instant,
    hasher: Option<Hasher>,
    copy: Option<Box<dyn BlobWriter>>,
    /// What the caller wants of the content.
    wanted: Range<u64>,
    held: Option<Bytes>,
}

impl VerifyingReader {
    pub(super) async fn open(
        server: ContentServer,
        tenant: Tenant,
        digest: Digest,
        wanted: Range<u64>,
    ) -> Result<VerifyingReader> {
        let streams = server.streams(&tenant)?;
        let pieces = retried(streams.patience, || open(&streams, &digest, 0)).await;
        let Some(pieces) = pieces.map_err(|error| server.failed(error))? else {
            return Err(Error::NotFound(digest));
        };
        // Without room for a copy, the content only passes through.
        let copy = match server.local().write(&tenant, UploadRequest::new(Expect::Digest(digest))).await {
            Ok(Begun::Writer(writer)) => Some(writer),
            Ok(Begun::Present) | Err(_) => None,
        };
        let hasher = Some(Hasher::new(digest.function));
        let silent_since = Instant::now();
        Ok(VerifyingReader {
            server,
            streams,
            digest,
            pieces,
            received: 0,
            silent_since,
            hasher,
            copy,
            wanted,
            held: None,
        })
    }

    /// The next piece of the stream, which continues where it was cut off.
    async fn receive(&mut self) -> Result<Option<Bytes>> {
        loop {
            let failure = match timeout(MAX_PAUSE, self.pieces.message()).await {
                Ok(Ok(Some(piece))) => {
                    self.silent_since = Instant::now();
                    return Ok(Some(piece.data));
                }
                Ok(Ok(None)) if self.received >= self.digest.size => return Ok(None),
                Ok(Ok(None)) => Status::unavailable("the content ended too early").into(),
                Ok(Err(status)) => CasError::from(status),
                Err(_) => Status::deadline_exceeded("the content came too slowly").into(),
            };
            let patience = self.streams.patience.saturating_sub(self.silent_since.elapsed());
            if !is_retryable(&failure) || patience.is_zero() {
                return Err(self.server.failed(failure));
            }
            let (streams, digest, offset) = (&self.streams, &self.digest, self.received);
            let opened = retried(patience, || open(streams, digest, offset)).await;
            let opened = opened.map_err(|error| self.server.failed(error))?;
            self.pieces = opened.ok_or(Error::NotFound(self.digest))?;
        }
    }

    /// Counts, hashes and copies a piece; the part of it that is wanted.
    async fn take(&mut self, piece: Bytes) -> Result<Bytes> {
        let begins = self.received;
        self.received += piece.len() as u64;
        if self.received > self.digest.size {
            return Err(self.server.wrong_content(self.digest));
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(&piece);
        }
        if let Some(mut copy) = self.copy.take()
            && copy.write(copy.committed(), piece.clone()).await.is_ok()
        {
            self.copy = Some(copy);
        }
        let within = |at: u64| (at.clamp(begins, self.received) - begins) as usize;
        Ok(piece.slice(within(self.wanted.start)..within(self.wanted.end)))
    }

    /// Compares the whole content with its digest.
    async fn verify(&mut self) -> Result<()> {
        let Some(hasher) = self.hasher.take() else { return Ok(()) };
        if hasher.finish() != self.digest {
            return Err(self.server.wrong_content(self.digest));
        }
        if let Some(copy) = self.copy.take()
            && let Err(error) = copy.finish().await
        {
            tracing::debug!(%error, "no copy of a blob was kept");
        }
        Ok(())
    }
}

impl BlobReader for VerifyingReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            if self.hasher.is_none() {
                return Ok(None);
            }
            while let Some(piece) = self.receive().await? {
                let wanted = self.take(piece).await?;
                if !wanted.is_empty()
                    && let Some(before) = self.held.replace(wanted)
                {
                    return Ok(Some(before));
                }
            }
            self.verify().await?;
            Ok(self.held.take())
        })
    }
}

/// A stream of a blob from an offset on; none if the server lacks the blob.
async fn open(
    client: &Client,
    digest: &Digest,
    offset: u64,
) -> std::result::Result<Option<Streaming<ReadResponse>>, CasError> {
    let resource_name = format!("blobs/{}", resource_path(digest));
    let read_offset = i64::try_from(offset).unwrap_or(i64::MAX);
    match client.byte_stream().read(ReadRequest { resource_name, read_offset, read_limit: 0 }).await {
        Ok(pieces) => Ok(Some(pieces.into_inner())),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status.into()),
    }
}
