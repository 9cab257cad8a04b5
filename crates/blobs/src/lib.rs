//! The content store and the action cache.
//!
//! Blobs are named by their digest and belong to a tenant. What can be read is whole and right, also after a
//! crash; what a power loss took is missing and is reported missing. Memory is bounded however large the
//! blobs are. Nothing here knows a protocol: adapters translate, and ask in terms of digests and bytes.
//!
//! Start at [`Blobs`] and [`ActionCache`], which adapters use.;
//! [`Local`] is the store with both interfaces.

mod action_cache;
mod blobs;
mod digest;
mod error;
mod hasher;
mod tenant;

pub use action_cache::{
    ActionCache, ActionKey, CachedResult, MAX_INSTANCE_BYTES, MAX_RESULT_BYTES, Origin, RawKey, Serve,
};
pub use blobs::{
    Begun, BlobReader, BlobWriter, Blobs, BoxFuture, Expect, MAX_BATCH_BYTES, Progress, UploadRequest,
    WriteStatus,
};
pub use digest::{Digest, DigestError, DigestFunction, HASH_BYTES, Hash};
pub use error::{Error, Result};
pub use hasher::Hasher;
pub use tenant::{BadTenant, MAX_TENANT_BYTES, Tenant};
