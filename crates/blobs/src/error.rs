//! The errors of blobs; an adapter maps each to a status.

use std::{io, path::Path, sync::Arc};

use crate::Digest;

/// Cloneable, because one failure of the disk may be the answer to every blob of a batch.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// NOT_FOUND. A blob that was damaged on disk is reported like this after its first reader.
    #[error("blob {0} is not here")]
    NotFound(Digest),
    /// INVALID_ARGUMENT: the content does not have the announced digest.
    #[error("the content is {actual}, not {expected} as announced")]
    Mismatch { expected: Digest, actual: Digest },
    /// INVALID_ARGUMENT: more bytes came than were announced.
    #[error("more content came than the {announced} bytes that were announced")]
    TooLong { announced: u64 },
    /// INVALID_ARGUMENT: a write that does not continue where the upload stands (N16).
    #[error("the upload continues at offset {committed}, not at {offset}")]
    WrongOffset { committed: u64, offset: u64 },
    /// OUT_OF_RANGE: a read that starts beyond the end (I16).
    #[error("offset {offset} is beyond the end of a blob of {size} bytes")]
    OutOfRange { offset: u64, size: u64 },
    /// INVALID_ARGUMENT: a blob, an entry, a name or a batch beyond a limit of the store.
    #[error("{what} of {size} bytes is over the limit of {limit}")]
    TooLarge { what: &'static str, size: u64, limit: u64 },
    /// INVALID_ARGUMENT: a compressed stream that is damaged, cut off, too long or followed by something (I15).
    #[error("the compressed content is not valid: {0}")]
    BadCompression(&'static str),
    /// RESOURCE_EXHAUSTED: the size cap is reached and all that is left is in use.
    #[error("the store is full: {needed} bytes needed, everything that could go is in use")]
    Full { needed: u64 },
    /// RESOURCE_EXHAUSTED: the tenant has as many bytes as it may have, and all that is left is in use.
    #[error(
        "the tenant may store {quota} bytes: {needed} more do not fit, because the rest is in use; wait, or ask the operator to \
         raise limits.tenant.blob_mib"
    )]
    TenantFull { needed: u64, quota: u64 },
    /// RESOURCE_EXHAUSTED: the disk is full, whatever the cap says (D6).
    #[error("no space left on the disk")]
    DiskFull,
    /// RESOURCE_EXHAUSTED: too many uploads are open (A7).
    #[error("too many uploads are open: the limit is {limit}")]
    TooManyUploads { limit: usize },
    /// RESOURCE_EXHAUSTED: too many large blobs are being read.
    #[error("too many blobs are being read: the limit is {limit}")]
    TooManyReads { limit: usize },
    /// ABORTED: another writer has continued this upload.
    #[error("another writer has taken over this upload")]
    TakenOver,
    /// DATA_LOSS: the disk returned other bytes than were written. The blob is missing from now on (D27).
    #[error("blob {0} was damaged on disk and has been removed")]
    Damaged(Digest),
    /// The caller may not do this, or not now; the store itself never says so, but what stands before it does.
    #[error("{why}")]
    Refused { refusal: Refusal, why: Arc<str> },
    /// UNAVAILABLE: the server that has the content cannot be used now.
    #[error("{0}")]
    Unavailable(Arc<str>),
    /// INTERNAL.
    #[error("cannot {action}: {source}")]
    Io { action: String, source: Arc<io::Error> },
}

/// Why a caller is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// PERMISSION_DENIED.
    Forbidden,
    /// UNAVAILABLE: the same call may succeed soon.
    NotYet,
    /// FAILED_PRECONDITION: the same call does not succeed.
    Unreadable,
    /// RESOURCE_EXHAUSTED.
    OverLimit,
}

impl Error {
    /// Refuses a caller.
    pub fn refused(refusal: Refusal, why: &str) -> Error {
        Error::Refused { refusal, why: why.into() }
    }

    /// Wraps an error of the operating system. A full disk is a separate error, because it is not a bug.
    pub(crate) fn io<'a>(verb: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> Error + 'a {
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::DiskFull,
            _ => Error::Io { action: format!("{verb} {}", path.display()), source: Arc::new(source) },
        }
    }
}

pub type Result<T> = std::result::Result<T, Error>;
