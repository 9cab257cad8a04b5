//! Protects the inputs of executions from eviction, from before the inputs are looked up until the execution is over.
//!
//! The number of pinned digests is limited. If an input is evicted because it could not be pinned, the worker reports
//! it as missing, and the client uploads it again.

use std::sync::Arc;

use authority::Scope;
use blobs::{Blobs, Digest, Pinned};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::inputs;
use crate::reapi::concurrency::ConcurrencyLimits;
use crate::reapi::store::Store;
use crate::reapi::tenant;

/// Most pinned digests, each counted for every execution that needs it. They take about 200 MiB.
const MAX_PINNED: usize = 4_000_000;
/// Actions that are read again at the same time after a restart, so that permits are left for new ones.
const MAX_READ_AGAIN: usize = 4;

#[derive(Clone)]
pub(crate) struct Pins {
    blobs: Arc<dyn Blobs>,
    capacity: Arc<Semaphore>,
    reading: Arc<Semaphore>,
    limits: ConcurrencyLimits,
}

/// Pins the inputs of one execution until it is dropped.
pub(crate) struct PinGuard {
    _pinned: Pinned,
    _permit: OwnedSemaphorePermit,
}

impl Pins {
    pub(crate) fn new(blobs: Arc<dyn Blobs>, limits: ConcurrencyLimits) -> Pins {
        let reading = Arc::new(Semaphore::new(MAX_READ_AGAIN));
        Pins { blobs, capacity: Arc::new(Semaphore::new(MAX_PINNED)), reading, limits }
    }

    /// None when too many digests are pinned already.
    pub(crate) fn pin(&self, store: &Store, needed: &[Digest]) -> Option<PinGuard> {
        let count = u32::try_from(needed.len()).ok();
        let Some(permit) = count.and_then(|count| self.capacity.clone().try_acquire_many_owned(count).ok())
        else {
            tracing::warn!(digests = needed.len(), "what an execution needs may be evicted before it is run");
            return None;
        };
        Some(PinGuard { _pinned: store.blobs.pin(&store.tenant, needed), _permit: permit })
    }

    /// Pins the inputs of an action that was accepted before this process started.
    pub(crate) async fn again(&self, scope: &Scope, action: &Digest) -> Option<PinGuard> {
        let _permit = self.reading.acquire().await.ok()?;
        let needed = async {
            let (tenant, limits) = (tenant(scope)?, self.limits.clone());
            let store = Store { blobs: self.blobs.clone(), tenant, limits };
            let permit = store.walk().await?;
            let needed = inputs::needed(&store, &permit, action).await?;
            Ok::<_, Status>(self.pin(&store, &needed))
        };
        match needed.await {
            Ok(held) => held,
            Err(why) => {
                tracing::warn!(%action, why = why.message(), "what an execution needs is not known any more");
                None
            }
        }
    }
}
