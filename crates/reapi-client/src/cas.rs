//! The interface of a content store: small blobs in batches, large ones as files.

use std::error::Error as _;
use std::fs::File;
use std::io;

use blobs::Digest;
use bytes::Bytes;
use execution::Failure;
use tonic::{Code, Status};
use wire::grpc::ErrorCategory;

/// Blobs up to this size are transferred whole and in batches, larger ones as streams.
pub const MAX_SMALL_BYTES: u64 = 256 * 1024;

/// Every call is about blobs of one digest function. An implementation need not verify the content that it reads: the
/// user of the content does.
#[tonic::async_trait]
pub trait Cas: Send + Sync + 'static {
    /// The blobs that the store lacks.
    async fn find_missing(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Digest>, CasError>;

    /// The contents of small blobs, in order; `None` for a missing blob.
    async fn read_many(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Option<Bytes>>, CasError>;

    /// Writes a blob of any size into an empty file, with bounded memory. Returns whether the store has the blob.
    async fn read_to_file(&self, instance: &str, digest: &Digest, file: File) -> Result<bool, CasError>;

    async fn upload_many(&self, instance: &str, blobs: Vec<(Digest, Bytes)>) -> Result<(), CasError>;

    /// Stores a blob from a file of any size, read from its beginning, with bounded memory.
    async fn upload_file(&self, instance: &str, digest: &Digest, file: File) -> Result<(), CasError>;
}

/// An error of the content store. A missing blob is not an error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CasError {
    /// A later call may succeed: no connection, a timeout, a store that is about to stop.
    #[error("the content store is unavailable: {0}")]
    Unavailable(String),
    /// A later call may succeed: the store is full, or has too much to do.
    #[error("the content store has no room: {0}")]
    Exhausted(String),
    /// A later call would be refused again.
    #[error("the content store refuses: {0}")]
    Refused(String),
    /// The caller's own file failed.
    #[error("a file of the worker failed: {0}")]
    File(String),
}

impl From<Status> for CasError {
    fn from(status: Status) -> CasError {
        use Code::{Aborted, Cancelled, DeadlineExceeded, Internal, ResourceExhausted, Unavailable, Unknown};
        let why = format!("{:?}: {}", status.code(), status.message());
        // A response that was damaged on the way says nothing about the request.
        let is_damaged = status.source().is_some_and(|source| source.is::<prost::DecodeError>());
        match status.code() {
            ResourceExhausted => CasError::Exhausted(why),
            Unavailable | DeadlineExceeded | Aborted | Internal | Unknown | Cancelled => {
                CasError::Unavailable(why)
            }
            _ if is_damaged => CasError::Unavailable(why),
            _ => CasError::Refused(why),
        }
    }
}

impl From<io::Error> for CasError {
    fn from(error: io::Error) -> CasError {
        CasError::File(error.to_string())
    }
}

impl From<CasError> for Failure {
    fn from(error: CasError) -> Failure {
        let message = error.to_string();
        let unavailable =
            |message| Failure::new(Failure::CAS_UNAVAILABLE, ErrorCategory::Infrastructure, message);
        match error {
            CasError::File(_) => Failure::broken(message),
            CasError::Unavailable(_) | CasError::Exhausted(_) => unavailable(message).retryable(),
            CasError::Refused(_) => unavailable(message),
        }
    }
}
