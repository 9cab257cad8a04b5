//! A content store and an action cache on another server, which all nodes of a cluster share: a `lessor serve`, or any
//! other cache of the Remote Execution API.
//!
//! The other server alone says what is present. A local store in front of it holds uploads until they are there, so that they
//! can be repeated, and copies of what was read, which are evicted like everything in a store. Content is compared with
//! its digest before its last byte is given out.

mod action_cache;
mod hash_lookup;
mod reader;
mod writer;

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use blobs::{
    Begun, BlobReader, Blobs, BoxFuture, Digest, DigestFunction, Error, Expect, Hash, Local, Pinned, Refusal,
    Result, Tenant, UploadRequest, WriteStatus,
};
use bytes::{Bytes, BytesMut};
use credentials::Connector;

use self::hash_lookup::HashLookup;
use self::reader::{Slice, VerifyingReader};
use self::writer::ForwardingWriter;
use crate::{BLOB_OVERHEAD_BYTES, Cas, CasError, Client, MAX_SMALL_BYTES, Options};

/// Most readers of large blobs at a time: fewer than a server allows streams on one connection.
pub const MAX_READS: usize = 150;
/// Blobs up to this size are sent in batches, which every server accepts.
const MAX_BATCHED_BYTES: u64 = 2 << 20;
/// How long a call that fails on the way is repeated. Clients repeat calls as well, so it is short.
const PATIENCE: Duration = Duration::from_secs(5);

/// [`Blobs`] and [`blobs::ActionCache`] of another server. Cheap to clone.
#[derive(Clone)]
pub struct ContentServer(Arc<Inner>);

struct Inner {
    /// As messages name it.
    url: String,
    calls: Client,
    /// A connection of its own, so that slow streams do not keep short calls waiting.
    streams: Client,
    by_hash: HashLookup,
    local: Arc<Local>,
}

impl ContentServer {
    /// Connects on first use. `local` holds uploads on their way and copies of what was read.
    pub fn new(url: &str, connector: Connector, local: Arc<Local>) -> io::Result<ContentServer> {
        ContentServer::with_patience(url, connector, local, PATIENCE)
    }

    /// With another time for repeated calls.
    pub fn with_patience(
        url: &str,
        connector: Connector,
        local: Arc<Local>,
        patience: Duration,
    ) -> io::Result<ContentServer> {
        let by_hash = HashLookup::new(url, &connector, patience)?;
        let options = Options { tenant: None, connector, patience };
        let (calls, streams) = (Client::new(url, &options)?, Client::new(url, &options)?);
        Ok(ContentServer(Arc::new(Inner { url: url.to_owned(), calls, streams, by_hash, local })))
    }

    fn local(&self) -> &Local {
        &self.0.local
    }

    /// Makes calls for a view of a tenant.
    fn calls(&self, tenant: &Tenant) -> Result<Client> {
        self.0.calls.for_tenant(&tenant.name_elsewhere()).map_err(|error| self.failed(error))
    }

    fn streams(&self, tenant: &Tenant) -> Result<Client> {
        self.0.streams.for_tenant(&tenant.name_elsewhere()).map_err(|error| self.failed(error))
    }

    /// The error of a call, which names the server.
    fn failed(&self, error: CasError) -> Error {
        let url = &self.0.url;
        match error {
            CasError::Unavailable(why) | CasError::File(why) => {
                Error::Unavailable(format!("the content server {url} cannot be used now: {why}").into())
            }
            CasError::Exhausted(why) => {
                Error::refused(Refusal::OverLimit, &format!("the content server {url} has no room: {why}"))
            }
            CasError::Refused(why) => Error::refused(
                Refusal::Unreadable,
                &format!(
                    "the content server {url} refuses this node: {why}; see `storage` in its configuration"
                ),
            ),
        }
    }

    /// Content that is not what its digest says. It is never given out.
    fn wrong_content(&self, digest: Digest) -> Error {
        tracing::error!(server = %self.0.url, %digest, "the content server sent content that is not that of its digest");
        Error::Damaged(digest)
    }

    /// Whether the server has a blob.
    async fn has(&self, tenant: &Tenant, digest: &Digest) -> Result<bool> {
        Ok(self.missing(tenant, std::slice::from_ref(digest)).await?.is_empty())
    }

    async fn missing(&self, tenant: &Tenant, digests: &[Digest]) -> Result<Vec<Digest>> {
        let mut seen = HashSet::with_capacity(digests.len());
        let asked: Vec<Digest> = digests
            .iter()
            .filter(|digest| !digest.is_empty_blob() && seen.insert(**digest))
            .copied()
            .collect();
        let calls = self.calls(tenant)?;
        let mut missing = HashSet::new();
        for function in DigestFunction::ALL {
            let of_function: Vec<Digest> =
                asked.iter().filter(|digest| digest.function == function).copied().collect();
            if !of_function.is_empty() {
                let found = calls.find_missing("", &of_function).await;
                missing.extend(found.map_err(|error| self.failed(error))?);
            }
        }
        Ok(asked.into_iter().filter(|digest| missing.contains(digest)).collect())
    }

    /// Small blobs of the server, verified; an answer for each in order.
    async fn fetch_small(&self, tenant: &Tenant, digests: &[Digest]) -> Vec<Result<Bytes>> {
        let mut answers: Vec<Result<Bytes>> =
            digests.iter().map(|digest| Err(Error::NotFound(*digest))).collect();
        for function in DigestFunction::ALL {
            let places: Vec<usize> =
                (0..digests.len()).filter(|at| digests[*at].function == function).collect();
            let asked: Vec<Digest> = places.iter().map(|at| digests[*at]).collect();
            if asked.is_empty() {
                continue;
            }
            let read = match self.calls(tenant) {
                Ok(calls) => calls.read_many("", &asked).await.map_err(|error| self.failed(error)),
                Err(error) => Err(error),
            };
            match read {
                Ok(contents) => {
                    for ((at, digest), content) in places.into_iter().zip(asked).zip(contents) {
                        answers[at] = match content {
                            None => Err(Error::NotFound(digest)),
                            Some(content) if Digest::of(function, &content) == digest => Ok(content),
                            Some(_) => Err(self.wrong_content(digest)),
                        };
                    }
                }
                Err(error) => places.into_iter().for_each(|at| answers[at] = Err(error.clone())),
            }
        }
        answers
    }

    /// The largest blob that is sent in a batch. The server says what it accepts once.
    async fn max_batched_bytes(&self) -> Result<u64> {
        let announced = self.0.calls.max_batch_bytes("").await.map_err(|error| self.failed(error))?;
        Ok(announced.saturating_sub(BLOB_OVERHEAD_BYTES).min(MAX_BATCHED_BYTES))
    }

    /// A whole blob, in memory.
    async fn read_whole(&self, tenant: &Tenant, digest: Digest) -> Result<Bytes> {
        let mut reader = self.read(tenant, digest, 0, None).await?;
        let mut content = BytesMut::new();
        while let Some(piece) = reader.next().await? {
            content.extend_from_slice(&piece);
        }
        Ok(content.freeze())
    }

    /// Copies a blob from one view to another.
    async fn copy(&self, from: &Tenant, to: &Tenant, digest: Digest) -> Result<()> {
        let mut reader = self.read(from, digest, 0, None).await?;
        let begun = self.local().write(to, UploadRequest::new(Expect::Digest(digest))).await?;
        if let Begun::Writer(mut writer) = begun {
            while let Some(piece) = reader.next().await? {
                writer.write(writer.committed(), piece).await?;
            }
            writer.finish().await?;
        }
        self.push(to, digest).await
    }
}

impl Blobs for ContentServer {
    fn find_missing<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<Vec<Digest>>> {
        Box::pin(self.missing(tenant, digests))
    }

    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        function: DigestFunction,
        hash: Hash,
    ) -> BoxFuture<'a, Result<Option<Digest>>> {
        Box::pin(async move {
            match self.local().find(tenant, function, hash).await? {
                Some(digest) => Ok(Some(digest)),
                None => {
                    let found = self.0.by_hash.find(&tenant.name_elsewhere(), function, hash).await;
                    found.map_err(|error| self.failed(error))
                }
            }
        })
    }

    fn get_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        Box::pin(async move {
            let mut answers = self.local().get_many(tenant, digests).await;
            let is_absent =
                |answer: &Result<Bytes>| matches!(answer, Err(Error::NotFound(_) | Error::Damaged(_)));
            let absent: Vec<usize> = (0..answers.len()).filter(|at| is_absent(&answers[*at])).collect();
            if absent.is_empty() {
                return answers;
            }
            let max_batched = match self.max_batched_bytes().await {
                Ok(max_batched) => max_batched,
                Err(error) => {
                    absent.into_iter().for_each(|at| answers[at] = Err(error.clone()));
                    return answers;
                }
            };
            let (small, large): (Vec<usize>, Vec<usize>) =
                absent.into_iter().partition(|at| digests[*at].size <= max_batched);
            for at in large {
                answers[at] = self.read_whole(tenant, digests[at]).await;
            }
            let asked: Vec<Digest> = small.iter().map(|at| digests[*at]).collect();
            let mut copies = Vec::new();
            for (at, fetched) in small.into_iter().zip(self.fetch_small(tenant, &asked).await) {
                copies.extend(fetched.as_ref().ok().map(|content| (digests[at], content.clone())));
                answers[at] = fetched;
            }
            // Without room for copies, content is read from the server again.
            if !copies.is_empty() {
                self.local().put_many(tenant, copies).await;
            }
            answers
        })
    }

    fn put_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        blobs: Vec<(Digest, Bytes)>,
    ) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(self.put_all(tenant, blobs))
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        digest: Digest,
        offset: u64,
        limit: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn BlobReader>>> {
        Box::pin(async move {
            match self.local().read(tenant, digest, offset, limit).await {
                Err(Error::NotFound(_) | Error::Damaged(_)) => {}
                answer => return answer,
            }
            if offset > digest.size {
                return Err(Error::OutOfRange { offset, size: digest.size });
            }
            let end = limit.map_or(digest.size, |limit| offset.saturating_add(limit).min(digest.size));
            if digest.size <= MAX_SMALL_BYTES && digest.size <= self.max_batched_bytes().await? {
                let content = self.get_many(tenant, &[digest]).await.pop();
                let content = content.unwrap_or(Err(Error::NotFound(digest)))?;
                let wanted = content.slice(offset as usize..end as usize);
                return Ok(Box::new(Slice::new(wanted)) as Box<dyn BlobReader>);
            }
            let reader = VerifyingReader::open(self.clone(), tenant.clone(), digest, offset..end).await?;
            Ok(Box::new(reader) as Box<dyn BlobReader>)
        })
    }

    fn write<'a>(&'a self, tenant: &'a Tenant, upload: UploadRequest) -> BoxFuture<'a, Result<Begun>> {
        Box::pin(async move {
            if let Expect::Digest(digest) = upload.expect
                && self.has(tenant, &digest).await?
            {
                return Ok(Begun::Present);
            }
            let expect = upload.expect;
            match self.local().write(tenant, upload).await? {
                Begun::Writer(writer) => {
                    let (server, tenant) = (self.clone(), tenant.clone());
                    Ok(Begun::Writer(Box::new(ForwardingWriter { server, tenant, expect, writer })))
                }
                Begun::Present => {
                    self.push_expected(tenant, expect).await?;
                    Ok(Begun::Present)
                }
            }
        })
    }

    fn write_status<'a>(
        &'a self,
        tenant: &'a Tenant,
        name: &'a str,
        digest: Digest,
    ) -> BoxFuture<'a, WriteStatus> {
        Box::pin(async move {
            if self.has(tenant, &digest).await.unwrap_or(false) {
                return WriteStatus { committed: digest.size, complete: true };
            }
            match self.local().write_status(tenant, name, digest).await {
                // A copy that the server has lost. Whoever sends it again finds that nothing need be sent.
                status if status.complete => WriteStatus { committed: 0, complete: false },
                status => status,
            }
        })
    }

    /// The other server has no pins: it must have room for what is in use.
    fn pin(&self, _: &Tenant, _: &[Digest]) -> Pinned {
        Box::new(())
    }

    fn promote<'a>(
        &'a self,
        staging_area: &'a Tenant,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for digest in self.missing(tenant, digests).await? {
                self.copy(staging_area, tenant, digest).await?;
            }
            Ok(())
        })
    }

    fn max_blob_bytes(&self) -> u64 {
        self.local().max_blob_bytes()
    }
}
