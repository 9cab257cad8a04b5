//! One upload: content that arrives in pieces and becomes a blob when it is complete and correct.
//!
//! Content up to the size of a packed blob stays in memory; larger content goes to a temporary file. Hash and checksums
//! are computed as the content arrives, so that finishing does not read it again.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Arc, MutexGuard},
};

use super::{
    checksums::Checksums, inner::Inner, options::RESERVE_STEP_BYTES, put::item, record::HEADER_BYTES,
    uploads::Cell,
};
use crate::{Digest, DigestFunction, Error, Expect, Hash, Hasher, Progress, Result, Tenant, UploadRequest};

/// Files of blobs are read-only.
const FILE_MODE: u32 = 0o444;

/// The writer's end of an upload. Dropping it leaves a named upload to whoever comes back for it.
pub struct Upload {
    inner: Arc<Inner>,
    tenant: Tenant,
    cell: Arc<Cell>,
    turn: u64,
}

/// What has come so far.
pub struct Content {
    expect: Expect,
    hasher: Hasher,
    checksums: Checksums,
    sink: Sink,
    committed: u64,
    reserved: u64,
    tenant: [u8; 16],
    inner: Arc<Inner>,
}

enum Sink {
    Memory(Vec<u8>),
    File {
        file: File,
        path: PathBuf,
    },
    /// Finished, or given up.
    Closed,
}

impl Upload {
    /// Begins or continues an upload; `None` if the blob is here already.
    pub fn begin(inner: &Arc<Inner>, tenant: &Tenant, request: &UploadRequest) -> Result<Option<Upload>> {
        if is_here(inner, tenant, &request.expect) {
            return Ok(None);
        }
        if let Expect::Digest(digest) = request.expect
            && digest.size > inner.options.max_blob_bytes
        {
            let limit = inner.options.max_blob_bytes;
            return Err(Error::TooLarge { what: "a blob", size: digest.size, limit });
        }
        if let Expect::Digest(digest) = request.expect {
            inner.check_announced(tenant, digest.size)?;
        }
        let (cell, turn) = inner.uploads.open(inner, tenant, request)?;
        Ok(Some(Upload { inner: inner.clone(), tenant: tenant.clone(), cell, turn }))
    }

    /// Where the next write must begin.
    pub fn committed(&self) -> u64 {
        self.cell.committed()
    }

    /// Whether taking so many bytes more would not touch the disk.
    pub fn stays_in_memory(&self, more: usize) -> bool {
        self.committed() + more as u64 <= self.inner.options.small_blob_bytes
    }

    /// Takes a piece. After an error the upload stands where it stood.
    pub fn write(&mut self, offset: u64, piece: &[u8]) -> Result<Progress> {
        let mut content = self.content()?;
        if offset != content.committed {
            return Err(Error::WrongOffset { committed: content.committed, offset });
        }
        content.write(piece).inspect_err(|error| self.inner.totals.note_failure(error))?;
        self.cell.note(&content);
        drop(content);
        let is_here = is_here(&self.inner, &self.tenant, &self.cell.expect);
        Ok(if is_here { Progress::Present } else { Progress::More })
    }

    /// Checks the content and makes the blob visible.
    pub fn finish(self) -> Result<Digest> {
        let finished = {
            let mut content = self.content()?;
            content.finish(&self.tenant)
        };
        self.inner.uploads.close(&self.cell);
        finished
    }

    /// Stops before the end. The answer is where a writer that comes back goes on; 0 if nothing is kept for it.
    pub fn leave(self) -> u64 {
        self.cell.kept()
    }

    /// The content, unless another writer has it now.
    fn content(&self) -> Result<MutexGuard<'_, Content>> {
        let content = self.cell.content();
        if self.cell.turn() == self.turn { Ok(content) } else { Err(Error::TakenOver) }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.inner.uploads.leave(&self.cell, self.turn);
    }
}

impl Content {
    pub fn new(inner: &Arc<Inner>, tenant: [u8; 16], expect: Expect) -> Content {
        Content {
            expect,
            hasher: Hasher::new(function(&expect)),
            checksums: Checksums::default(),
            sink: Sink::Memory(Vec::new()),
            committed: 0,
            reserved: 0,
            tenant,
            inner: inner.clone(),
        }
    }

    pub fn committed(&self) -> u64 {
        self.committed
    }

    /// Whether it is worth keeping for a writer that may come back.
    pub fn is_on_disk(&self) -> bool {
        matches!(self.sink, Sink::File { .. })
    }

    fn write(&mut self, piece: &[u8]) -> Result<()> {
        let end = self.committed + piece.len() as u64;
        match self.expect {
            Expect::Digest(digest) if end > digest.size => {
                return Err(Error::TooLong { announced: digest.size });
            }
            _ => {}
        }
        let limit = self.inner.options.max_blob_bytes;
        if end > limit {
            return Err(Error::TooLarge { what: "a blob", size: end, limit });
        }
        self.reserve(end)?;
        if end > self.inner.options.small_blob_bytes {
            self.spill()?;
        }
        match &mut self.sink {
            Sink::Memory(content) => content.extend_from_slice(piece),
            Sink::File { file, path } => {
                file.write_all_at(piece, self.committed).map_err(Error::io("write", path))?;
                self.checksums.update(piece);
            }
            Sink::Closed => return Err(Error::TakenOver),
        }
        self.hasher.update(piece);
        self.committed = end;
        Ok(())
    }

    /// Takes a share of the cap for what comes.
    fn reserve(&mut self, end: u64) -> Result<()> {
        if end <= self.reserved || end <= self.inner.options.small_blob_bytes {
            return Ok(());
        }
        let announced = if let Expect::Digest(digest) = self.expect { digest.size } else { u64::MAX };
        let wanted = end.next_multiple_of(RESERVE_STEP_BYTES).min(announced);
        self.inner.reserve_upload(self.tenant, wanted - self.reserved)?;
        self.reserved = wanted;
        Ok(())
    }

    /// Moves from memory to a file.
    fn spill(&mut self) -> Result<()> {
        let Sink::Memory(content) = &self.sink else { return Ok(()) };
        let path = self.inner.temp_path();
        let file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&path)
            .map_err(Error::io("create", &path))?;
        if let Err(error) = file.write_all_at(content, 0) {
            let _ = fs::remove_file(&path);
            return Err(Error::io("write", &path)(error));
        }
        self.checksums.update(content);
        self.sink = Sink::File { file, path };
        Ok(())
    }

    fn finish(&mut self, tenant: &Tenant) -> Result<Digest> {
        let actual = std::mem::replace(&mut self.hasher, Hasher::new(function(&self.expect))).finish();
        let expected = match self.expect {
            Expect::Digest(digest) => digest,
            Expect::Hash(function, hash) => Digest { function, hash, size: actual.size },
            Expect::Anything(_) => actual,
        };
        if actual != expected {
            return Err(Error::Mismatch { expected, actual });
        }
        match &self.sink {
            Sink::Memory(content) => {
                if !actual.is_empty_blob() {
                    self.inner.put_items(&[item(tenant, &actual, content)])?;
                }
            }
            Sink::File { file, path } => {
                protect(file).map_err(Error::io("protect", path))?;
                let checksums = std::mem::take(&mut self.checksums).finish();
                self.inner.commit_upload(
                    tenant,
                    &actual,
                    path,
                    &checksums,
                    std::mem::take(&mut self.reserved),
                )?;
            }
            Sink::Closed => return Err(Error::TakenOver),
        }
        Ok(actual)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.inner.release_upload(self.tenant, self.reserved);
        if let Sink::File { path, .. } = std::mem::replace(&mut self.sink, Sink::Closed)
            && let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a temporary file could not be removed");
        }
    }
}

impl Inner {
    /// Turns a temporary file into a blob, unless another upload was faster. The bytes that were reserved for
    /// it count as the file's from then on.
    fn commit_upload(
        &self,
        tenant: &Tenant,
        digest: &Digest,
        temp: &Path,
        checksums: &[u8],
        reserved: u64,
    ) -> Result<()> {
        let reservation = self.reserve_records((HEADER_BYTES + checksums.len()) as u64);
        let mut writer = self.writer();
        self.release_upload(tenant.fingerprint(), reserved);
        let _reservation = reservation?;
        if self.is_present(tenant, digest) {
            return Ok(());
        }
        writer.commit_file(self, tenant.fingerprint(), digest, temp, checksums)
    }
}

/// The mode that a file was made with was subject to the umask.
fn protect(file: &File) -> io::Result<()> {
    match file.metadata()?.permissions().mode() & 0o777 {
        FILE_MODE => Ok(()),
        _ => file.set_permissions(fs::Permissions::from_mode(FILE_MODE)),
    }
}

fn function(expect: &Expect) -> DigestFunction {
    match expect {
        Expect::Digest(digest) => digest.function,
        Expect::Hash(function, _) | Expect::Anything(function) => *function,
    }
}

fn is_here(inner: &Inner, tenant: &Tenant, expect: &Expect) -> bool {
    match expect {
        Expect::Digest(digest) => inner.is_present(tenant, digest),
        Expect::Hash(function, hash) => inner.find(tenant, *function, hash).is_some(),
        Expect::Anything(_) => false,
    }
}

impl Inner {
    /// The whole name of a blob of which only the hash is known.
    pub fn find(&self, tenant: &Tenant, function: DigestFunction, hash: &Hash) -> Option<Digest> {
        let empty = Digest::of(function, &[]);
        if empty.hash == *hash {
            return Some(empty);
        }
        let key = self.key_in(tenant, function.into(), hash)?;
        let size = self.index().locate(&key)?.size;
        Some(Digest { function, hash: *hash, size })
    }
}
