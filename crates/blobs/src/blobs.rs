//! The interface of a content store, as adapters see it.
//!
//! It is small so that it can be decorated (an existence cache, metrics, a remote store behind a local one)
//! and asynchronous because a remote store is. Methods return boxed futures, so that the trait is
//! object-safe; a box costs less than the smallest system call.

use std::{any::Any, pin::Pin, sync::Arc};

use bytes::Bytes;

use crate::{Digest, DigestFunction, Hash, Result, Tenant};

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Most bytes that one `get_many` or `put_many` carries: what fits into a gRPC message of the default limit,
/// with room for its other fields.
pub const MAX_BATCH_BYTES: u64 = 4 * 1024 * 1024 - 64 * 1024;

/// Keeps blobs from being evicted while it lives.
pub type Pinned = Box<dyn Any + Send + Sync>;

/// A content-addressed store, tenant by tenant.
pub trait Blobs: Send + Sync + 'static {
    /// Those of `digests` that are not here, once each, in the order of their first mention. The others have
    /// just been used, as far as eviction is concerned (R14).
    fn find_missing<'a>(
        &'a self,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<Vec<Digest>>>;

    /// The digest of a blob of which only the hash is known, if it is here.
    fn find<'a>(
        &'a self,
        tenant: &'a Tenant,
        function: DigestFunction,
        hash: Hash,
    ) -> BoxFuture<'a, Result<Option<Digest>>>;

    /// Whole blobs, an answer for each digest in order. Blobs beyond `MAX_BATCH_BYTES` in total are
    /// answered `TooLarge`.
    fn get_many<'a>(&'a self, tenant: &'a Tenant, digests: &'a [Digest])
    -> BoxFuture<'a, Vec<Result<Bytes>>>;

    /// Stores whole blobs, an answer for each in order; one bad blob does not harm the others. A blob that is
    /// here already is a success.
    fn put_many<'a>(
        &'a self,
        tenant: &'a Tenant,
        blobs: Vec<(Digest, Bytes)>,
    ) -> BoxFuture<'a, Vec<Result<()>>>;

    /// Reads a blob from `offset`, at most `limit` bytes of it (`None`: to the end).
    fn read<'a>(
        &'a self,
        tenant: &'a Tenant,
        digest: Digest,
        offset: u64,
        limit: Option<u64>,
    ) -> BoxFuture<'a, Result<Box<dyn BlobReader>>>;

    /// Begins an upload, or continues one by its name.
    fn write<'a>(&'a self, tenant: &'a Tenant, upload: UploadRequest) -> BoxFuture<'a, Result<Begun>>;

    /// The progress of a named upload (R24).
    fn write_status<'a>(
        &'a self,
        tenant: &'a Tenant,
        name: &'a str,
        digest: Digest,
    ) -> BoxFuture<'a, WriteStatus>;

    /// Pins these blobs against eviction until the returned value is dropped, also blobs that do not exist yet.
    fn pin(&self, tenant: &Tenant, digests: &[Digest]) -> Pinned;

    /// Moves blobs from a staging area into the view of a tenant. A blob that the tenant has already is a success, and so is
    /// the empty blob; for a blob that neither has, the answer is `NotFound`, and the blobs before it are moved.
    fn promote<'a>(
        &'a self,
        staging_area: &'a Tenant,
        tenant: &'a Tenant,
        digests: &'a [Digest],
    ) -> BoxFuture<'a, Result<()>>;

    /// The largest blob that is accepted.
    fn max_blob_bytes(&self) -> u64;
}

/// Reads a blob in pieces of bounded size.
pub trait BlobReader: Send {
    /// The next piece, or `None` at the end. After an error nothing more comes.
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>>;
}

/// A blob on its way in. Dropping it leaves what was committed for a writer that comes back with the same
/// name, for a bounded time.
pub trait BlobWriter: Send {
    /// Where the next write must begin. Less may be left for a writer that comes back; see `leave`.
    fn committed(&self) -> u64;

    /// Writes the piece that starts at `offset`. The result says whether the rest is needed.
    fn write(&mut self, offset: u64, piece: Bytes) -> BoxFuture<'_, Result<Progress>>;

    /// Checks the content and makes the blob visible; its digest is the answer.
    fn finish(self: Box<Self>) -> BoxFuture<'static, Result<Digest>>;

    /// Stops before the end, keeping what has come if it is worth it. The answer is where a writer that comes
    /// back can go on: never more than [`Blobs::write_status`] says afterwards, which is what a writer that
    /// does not know better relies on.
    fn leave(self: Box<Self>) -> BoxFuture<'static, Result<u64>>;
}

/// A request to upload a blob.
#[derive(Clone, Debug)]
pub struct UploadRequest {
    pub expect: Expect,
    /// The name by which a writer can come back, unique within the tenant; `None` cannot be resumed. The
    /// digest is part of the identity, so one name with two digests is two uploads (A8).
    pub name: Option<Arc<str>>,
    /// Where the writer begins: 0 starts anew, anything else must be what was committed so far.
    pub offset: u64,
}

impl UploadRequest {
    /// An upload that is not resumed.
    pub fn new(expect: Expect) -> UploadRequest {
        UploadRequest { expect, name: None, offset: 0 }
    }

    /// An upload that can be resumed under this name.
    pub fn named(digest: Digest, name: &str, offset: u64) -> UploadRequest {
        UploadRequest { expect: Expect::Digest(digest), name: Some(name.into()), offset }
    }
}

/// What is known about content before the upload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    Digest(Digest),
    /// Its hash, but not its size: a PUT in chunks.
    Hash(crate::DigestFunction, crate::Hash),
    /// Nothing: the digest is computed from the content.
    Anything(crate::DigestFunction),
}

/// The start of an upload.
pub enum Begun {
    /// The blob is here; nothing need be sent (R22).
    Present,
    Writer(Box<dyn BlobWriter>),
}

/// Whether an upload need go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    More,
    /// Another upload has brought the blob meanwhile; the rest need not be sent (R22).
    Present,
}

/// How far an upload has come, counting only what stays when its writer goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteStatus {
    pub committed: u64,
    pub complete: bool,
}
