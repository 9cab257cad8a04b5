//! The interface of a content store for a worker: small blobs in batches, large ones as files.

mod batches;
mod error;
mod grpc;
mod local;

use std::fs::File;

use blobs::Digest;
use bytes::Bytes;

pub use error::CasError;
pub use grpc::{GrpcCas, GrpcCasOptions, Scoped};
pub use local::LocalCas;

/// Blobs up to this size are handled whole and in batches, larger ones as streams.
pub const MAX_SMALL_BYTES: u64 = 256 * 1024;

/// Every call is about blobs of one digest function. An implementation need not verify what it reads: that is done
/// where the bytes are used.
#[tonic::async_trait]
pub trait Cas: Send + Sync + 'static {
    /// Those of the blobs that are not there.
    async fn find_missing(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Digest>, CasError>;

    /// The contents of small blobs, in order; nothing for those that are not there.
    async fn read_many(&self, instance: &str, digests: &[Digest]) -> Result<Vec<Option<Bytes>>, CasError>;

    /// Writes a blob of any size into an empty file, with bounded memory. Says whether the blob is there.
    async fn read_to_file(&self, instance: &str, digest: &Digest, file: File) -> Result<bool, CasError>;

    /// Stores small blobs.
    async fn upload_many(&self, instance: &str, blobs: Vec<(Digest, Bytes)>) -> Result<(), CasError>;

    /// Stores a blob from a file of any size, read from its beginning, with bounded memory.
    async fn upload_file(&self, instance: &str, digest: &Digest, file: File) -> Result<(), CasError>;
}
