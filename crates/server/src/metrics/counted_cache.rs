//! An action cache whose lookups over HTTP are counted. It changes nothing else: results of actions are counted where it is
//! known whether they are of use.

use std::sync::Arc;

use blobs::{ActionCache, ActionKey, BoxFuture, CachedResult, Digest, Origin, RawKey, Result, Serve, Tenant};
use bytes::Bytes;

use super::{Metrics, looked};

pub(super) struct CountedCache {
    pub inner: Arc<dyn ActionCache>,
    pub metrics: Metrics,
}

impl ActionCache for CountedCache {
    fn get_result<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a ActionKey,
        serve: Serve,
    ) -> BoxFuture<'a, Result<Option<CachedResult>>> {
        self.inner.get_result(tenant, key, serve)
    }

    fn put_result<'a>(
        &'a self,
        tenant: &'a Tenant,
        key: &'a ActionKey,
        origin: Origin,
        result: Bytes,
    ) -> BoxFuture<'a, Result<()>> {
        self.inner.put_result(tenant, key, origin, result)
    }

    fn remove_result<'a>(&'a self, tenant: &'a Tenant, key: &'a ActionKey) -> BoxFuture<'a, Result<()>> {
        self.inner.remove_result(tenant, key)
    }

    fn get_raw<'a>(&'a self, tenant: &'a Tenant, key: &'a RawKey) -> BoxFuture<'a, Result<Option<Digest>>> {
        Box::pin(async move {
            let found = self.inner.get_raw(tenant, key).await?;
            let hits = usize::from(found.is_some());
            looked(&self.metrics.0.http_cache_lookups, hits, 1 - hits);
            Ok(found)
        })
    }

    fn put_raw<'a>(&'a self, tenant: &'a Tenant, key: &'a RawKey, body: Digest) -> BoxFuture<'a, Result<()>> {
        self.inner.put_raw(tenant, key, body)
    }
}
