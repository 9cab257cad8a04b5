//! A store in a directory, for asynchronous code.
//!
//! Answers that are in memory, the page cache included, are given on the spot. Everything else runs on tokio's blocking
//! threads, one call for each batch or each stretch of a stream and never one for each blob of a batch: a call to a
//! blocking thread costs as much as storing several small blobs.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use tokio::task::spawn_blocking;

use crate::tenant::SharedCache;
use crate::{
    ActionCache, ActionKey, Begun, BlobReader, BlobWriter, Blobs, BoxFuture, CachedResult, Digest,
    DigestFunction, Error, Hash, Origin, Pinned, Progress, RawKey, Reader, Result, Serve, Store, Tenant,
    Upload, UploadRequest, WriteStatus,
};

/// Pieces that a reader fetches with one blocking call. The reader holds only these and the piece being sent.
const READ_AHEAD_PIECES: usize = 4;
/// Pieces of an upload are gathered up to this size before they go to the disk.
const GATHER_BYTES: usize = 256 << 10;

/// [`Blobs`] and [`ActionCache`] over a [`Store`]. Cheap to clone.
#[derive(Clone)]
pub struct Local {
    store: Store,
    shared_cache: SharedCache,
}

impl Local {
    pub fn new(store: Store) -> Local {
        Local { store, shared_cache: SharedCache::default() }
    }

    /// The content of these tenants is one: each sees the blobs and entries of the others.
    pub fn with_shared_cache(self, tenants: impl IntoIterator<Item = Tenant>) -> Local {
        Local { shared_cache: SharedCache::of(tenants), ..self }
    }

    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A reader of what need not be waited for.
    fn cached_reader(
        &self,
        tenant: &Tenant,
        digest: &Digest,
        offset: u64,
        limit: Option<u64>,
    ) -> Option<LocalReader> {
        let content = self.store.get_many_cached(self.view(tenant), &[*digest])?.pop()?;
        let end = limit.map_or(digest.size, |limit| offset.saturating_add(limit).min(digest.size));
        let piece = (offset <= end).then(|| content.slice(offset as usize..end as usize))?;
        let pieces = Some(piece).filter(|piece| !piece.is_empty()).into_iter().collect();
        Some(LocalReader { reader: None, ahead: Ahead { pieces, end: Some(Ok(())) } })
    }

    /// Where the content of a tenant is.
    fn view<'a>(&'a self, tenant: &'a Tenant) -> &'a Tenant {
        self.shared_cache.view(tenant)
    }

    /// Runs something that waits for the disk.
    async fn run<T: Send + 'static>(&self, job: impl FnOnce(&Store) -> T + Send + 'static) -> Result<T> {
        let store = self.store.clone();
        run_blocking(move || job(&store)).await
    }
}

impl Blobs for Local {
    fn find_missing<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<Vec<Digest>>> {
        Box::pin(async move { Ok(self.store.find_missing(self.view(tenant), digests)) })
    }

    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        function: DigestFunction,
        hash: Hash,
    ) -> BoxFuture<'a, Result<Option<Digest>>> {
        Box::pin(async move { Ok(self.store.find(self.view(tenant), function, &hash)) })
    }

    fn get_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Vec<Result<Bytes>>> {
        Box::pin(async move {
            if let Some(found) = self.store.get_many_cached(self.view(tenant), digests) {
                return found.into_iter().map(Ok).collect();
            }
            let (tenant, wanted) = (self.view(tenant).clone(), digests.to_vec());
            let answers = self.run(move |store| store.get_many(&tenant, &wanted)).await;
            answers.unwrap_or_else(|error| vec![Err(error); digests.len()])
        })
    }

    fn put_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        blobs: Vec<(Digest, Bytes)>,
    ) -> BoxFuture<'a, Vec<Result<()>>> {
        Box::pin(async move {
            let (tenant, count) = (self.view(tenant).clone(), blobs.len());
            let answers = self.run(move |store| store.put_many(&tenant, &blobs)).await;
            answers.unwrap_or_else(|error| vec![Err(error); count])
        })
    }

    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        digest: Digest,
        offset: u64,
        limit: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn BlobReader>>> {
        Box::pin(async move {
            if let Some(reader) = self.cached_reader(tenant, &digest, offset, limit) {
                return Ok(Box::new(reader) as Box<dyn BlobReader>);
            }
            let tenant = self.view(tenant).clone();
            let (reader, ahead) = self
                .run(move |store| {
                    let mut reader = store.read(&tenant, &digest, offset, limit)?;
                    let ahead = read_ahead(&mut reader);
                    Ok((reader, ahead))
                })
                .await??;
            Ok(Box::new(LocalReader { reader: Some(reader), ahead }) as Box<dyn BlobReader>)
        })
    }

    fn write<'a>(&'a self, tenant: &'a Tenant, upload: UploadRequest) -> BoxFuture<'a, Result<Begun>> {
        // Beginning touches no disk: a file is made when content comes that needs one.
        Box::pin(async move {
            Ok(match self.store.write(self.view(tenant), &upload)? {
                None => Begun::Present,
                Some(upload) => Begun::Writer(Box::new(LocalWriter {
                    upload: Some(upload),
                    gathered: Vec::new(),
                    bytes: 0,
                })),
            })
        })
    }

    fn write_status<'a>(
        &'a self,
        tenant: &'a Tenant,
        name: &'a str,
        digest: Digest,
    ) -> BoxFuture<'a, WriteStatus> {
        Box::pin(async move { self.store.write_status(self.view(tenant), name, &digest) })
    }

    fn pin(&self, tenant: &Tenant, digests: &[Digest]) -> Pinned {
        Box::new(self.store.pin(self.view(tenant), digests))
    }

    fn promote<'a>(
        &'a self,
        staging_area: &'a Tenant,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<()>> {
        let (from, to, digests) = (staging_area.clone(), self.view(tenant).clone(), digests.to_vec());
        Box::pin(async move { self.run(move |store| store.promote(&from, &to, &digests)).await? })
    }

    fn max_blob_bytes(&self) -> u64 {
        self.store.max_blob_bytes()
    }
}

impl ActionCache for Local {
    fn get_result<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a ActionKey,
        serve: Serve,
    ) -> BoxFuture<'a, Result<Option<CachedResult>>> {
        Box::pin(async move {
            if let Some(found) = self.store.get_result_cached(self.view(tenant), key, serve) {
                return Ok(found);
            }
            let (tenant, key) = (self.view(tenant).clone(), key.clone());
            self.run(move |store| store.get_result(&tenant, &key, serve)).await?
        })
    }

    fn put_result<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a ActionKey,
        origin: Origin,
        result: Bytes,
    ) -> BoxFuture<'a, Result<()>> {
        let (tenant, key) = (self.view(tenant).clone(), key.clone());
        Box::pin(
            async move { self.run(move |store| store.put_result(&tenant, &key, origin, &result)).await? },
        )
    }

    fn remove_result<'a>(&'a self, tenant: &'a Tenant, key: &'a ActionKey) -> BoxFuture<'a, Result<()>> {
        let (tenant, key) = (self.view(tenant).clone(), key.clone());
        Box::pin(async move { self.run(move |store| store.remove_result(&tenant, &key)).await? })
    }

    fn get_raw<'a>(&'a self, tenant: &'a Tenant, key: &'a RawKey) -> BoxFuture<'a, Result<Option<Digest>>> {
        let (tenant, key) = (self.view(tenant).clone(), key.clone());
        Box::pin(async move { self.run(move |store| store.get_raw(&tenant, &key)).await? })
    }

    fn put_raw<'a>(&'a self, tenant: &'a Tenant, key: &'a RawKey, body: Digest) -> BoxFuture<'a, Result<()>> {
        let (tenant, key) = (self.view(tenant).clone(), key.clone());
        Box::pin(async move { self.run(move |store| store.put_raw(&tenant, &key, &body)).await? })
    }
}

struct LocalReader {
    /// `None` during a blocking call, and for good after a blocking call that did not return.
    reader: Option<Reader>,
    ahead: Ahead,
}

/// Pieces that are ready, and what comes after them if that is known already.
struct Ahead {
    pieces: VecDeque<Bytes>,
    end: Option<Result<()>>,
}

fn read_ahead(reader: &mut Reader) -> Ahead {
    let mut ahead = Ahead { pieces: VecDeque::new(), end: None };
    while ahead.pieces.len() < READ_AHEAD_PIECES && ahead.end.is_none() {
        match reader.next_piece() {
            Ok(Some(piece)) => ahead.pieces.push_back(piece),
            Ok(None) => ahead.end = Some(Ok(())),
            Err(error) => ahead.end = Some(Err(error)),
        }
    }
    ahead
}

impl BlobReader for LocalReader {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            if self.ahead.pieces.is_empty() && self.ahead.end.is_none() {
                let mut reader = self.reader.take().ok_or_else(interrupted)?;
                let (reader, ahead) = run_blocking(move || {
                    let ahead = read_ahead(&mut reader);
                    (reader, ahead)
                })
                .await?;
                (self.reader, self.ahead) = (Some(reader), ahead);
            }
            match self.ahead.pieces.pop_front() {
                Some(piece) => Ok(Some(piece)),
                None => self.ahead.end.clone().unwrap_or(Ok(())).map(|()| None),
            }
        })
    }
}

struct LocalWriter {
    /// `None` during a blocking call, and for good after a blocking call that did not return.
    upload: Option<Upload>,
    gathered: Vec<Bytes>,
    bytes: usize,
}

impl LocalWriter {
    /// Brings what was gathered to the disk.
    async fn flush(&mut self) -> Result<Progress> {
        let mut upload = self.upload.take().ok_or_else(interrupted)?;
        let gathered = std::mem::take(&mut self.gathered);
        self.bytes = 0;
        let (upload, written) = run_blocking(move || {
            let written = write_all(&mut upload, &gathered);
            (upload, written)
        })
        .await?;
        self.upload = Some(upload);
        written
    }
}

fn write_all(upload: &mut Upload, pieces: &[Bytes]) -> Result<Progress> {
    let mut progress = Progress::More;
    for piece in pieces {
        progress = upload.write(upload.committed(), piece)?;
    }
    Ok(progress)
}

impl BlobWriter for LocalWriter {
    fn committed(&self) -> u64 {
        self.upload.as_ref().map_or(0, Upload::committed) + self.bytes as u64
    }

    fn write(&mut self, offset: u64, piece: Bytes) -> BoxFuture<'_, Result<Progress>> {
        Box::pin(async move {
            let committed = self.committed();
            let upload = self.upload.as_mut().ok_or_else(interrupted)?;
            if offset != committed {
                return Err(Error::WrongOffset { committed, offset });
            }
            if self.gathered.is_empty() && upload.stays_in_memory(piece.len()) {
                return upload.write(offset, &piece);
            }
            self.bytes += piece.len();
            self.gathered.push(piece);
            if self.bytes < GATHER_BYTES { Ok(Progress::More) } else { self.flush().await }
        })
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, Result<Digest>> {
        Box::pin(async move {
            let mut upload = self.upload.take().ok_or_else(interrupted)?;
            let gathered = std::mem::take(&mut self.gathered);
            run_blocking(move || {
                write_all(&mut upload, &gathered)?;
                upload.finish()
            })
            .await?
        })
    }

    fn leave(mut self: Box<Self>) -> BoxFuture<'static, Result<u64>> {
        Box::pin(async move {
            let mut upload = self.upload.take().ok_or_else(interrupted)?;
            let gathered = std::mem::take(&mut self.gathered);
            run_blocking(move || {
                write_all(&mut upload, &gathered)?;
                Ok(upload.leave())
            })
            .await?
        })
    }
}

impl Drop for LocalWriter {
    fn drop(&mut self) {
        // What was gathered is not written any more: a client may have been sent the offset to continue at.
        // Giving up a large upload frees its file, which can take a while.
        if let Some(upload) = self.upload.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(upload));
        }
    }
}

/// Runs a job on a blocking thread.
async fn run_blocking<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    match spawn_blocking(job).await {
        Ok(value) => Ok(value),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(interrupted()),
    }
}

/// The runtime is shutting down, or a caller gave up on an earlier call and came back.
fn interrupted() -> Error {
    let source = Arc::new(std::io::ErrorKind::Interrupted.into());
    Error::Io { action: "go on after an interrupted call".into(), source }
}
