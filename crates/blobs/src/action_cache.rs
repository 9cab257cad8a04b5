//! The interface of the action cache, as adapters see it.
//!
//! Values are opaque bytes here: whether the outputs that a result names are still present is the caller's to
//! ask, with `Blobs::find_missing`, because it takes knowledge of the protocol to find them (R26).

use std::sync::Arc;

use bytes::Bytes;

use crate::{BoxFuture, Digest, Hash, Result, Tenant};

/// Longest encoded result.
pub const MAX_RESULT_BYTES: u64 = 4 * 1024 * 1024;
/// Longest instance name.
pub const MAX_INSTANCE_BYTES: usize = 1024;

/// Cached results, tenant by tenant.
pub trait ActionCache: Send + Sync + 'static {
    fn get_result<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a ActionKey,
        serve: Serve,
    ) -> BoxFuture<'a, Result<Option<CachedResult>>>;

    /// Stores a result; an earlier one of the same origin is replaced.
    fn put_result<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a ActionKey,
        origin: Origin,
        result: Bytes,
    ) -> BoxFuture<'a, Result<()>>;

    /// Forgets the results of both origins, also across a restart.
    fn remove_result<'a>(&'a self, tenant: &'a Tenant, key: &'a ActionKey) -> BoxFuture<'a, Result<()>>;

    /// The body under a raw key, as the digest of a blob that is present now. Raw entries are a space of
    /// their own: whatever clients of the HTTP cache put there is never taken for an action's result.
    fn get_raw<'a>(&'a self, tenant: &'a Tenant, key: &'a RawKey) -> BoxFuture<'a, Result<Option<Digest>>>;

    /// Lets a raw key stand for a blob, which has been uploaded before.
    fn put_raw<'a>(&'a self, tenant: &'a Tenant, key: &'a RawKey, body: Digest) -> BoxFuture<'a, Result<()>>;
}

/// An action within an instance.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ActionKey {
    pub instance: Arc<str>,
    pub action: Digest,
}

/// A key of the HTTP cache: 64 hexadecimal digits that need not be the hash of anything, below a prefix.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RawKey {
    pub prefix: Arc<str>,
    pub key: Hash,
}

/// The source of an action's result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// The coordinator, when it committed an execution.
    Committed,
    /// A client that is allowed to.
    Uploaded,
}

/// The sources whose results are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Serve {
    /// Only results of the coordinator: what Execute serves.
    Committed,
    /// Results of any source, the coordinator's first: what GetActionResult serves.
    Any,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CachedResult {
    pub origin: Origin,
    pub bytes: Bytes,
}
