//! The content store and the action cache.
//!
//! Blobs are named by their digest and belong to a tenant. A blob that can be read is complete and correct, also after a
//! crash; a blob lost in a power failure is reported missing. Memory is bounded, however large the blobs are. This crate
//! knows no protocol: adapters translate requests into digests and bytes.
//!
//! Start at [`Blobs`] and [`ActionCache`], which adapters use, and [`Store`], the directory behind them;
//! [`Local`] is the store with both interfaces, and [`ReadLimiter`] the first of the decorators.

mod action_cache;
mod blobs;
mod compression;
mod digest;
mod disk;
mod error;
mod hasher;
mod local;
mod read_limiter;
mod tenant;

pub use action_cache::{
    ActionCache, ActionKey, CachedResult, MAX_INSTANCE_BYTES, MAX_RESULT_BYTES, Origin, RawKey, Serve,
};
pub use blobs::{
    Begun, BlobReader, BlobWriter, Blobs, BoxFuture, Expect, MAX_BATCH_BYTES, Pinned, Progress,
    UploadRequest, WriteStatus,
};
pub use compression::{ZstdDecoder, ZstdDecompressor, ZstdEncoder};
pub use digest::{Digest, DigestError, DigestFunction, HASH_BYTES, Hash};
pub use disk::{OpenError, Options, Pin, Reader, Store, TenantQuotas, Upload, Usage};
pub use error::{Error, Refusal, Result};
pub use hasher::Hasher;
pub use local::Local;
pub use read_limiter::ReadLimiter;
pub use tenant::{BadTenant, MAX_TENANT_BYTES, Tenant};
