//! What executions on their way need is kept from eviction, from before it is looked for until they are over.
//!
//! Bounded: beyond so many digests nothing more is pinned. What is evicted then is found missing by the worker, and the
//! client is told to upload it again.

use std::sync::Arc;

use authority::Scope;
use blobs::{Blobs, Digest, Pinned};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::inputs;
use crate::reapi::concurrency::ConcurrencyLimits;
use crate::reapi::store::Store;
use crate::reapi::tenant;

/// Most digests that are pinned, each counted for every execution that needs it. They take about 200 MiB.
const MAX_PINNED: usize = 4_000_000;
/// Actions that are read again at one time after a restart, so that they leave places to new ones.
const MAX_READ_AGAIN: usize = 4;

/// Cheap to clone.
#[derive(Clone)]
pub struct Pins {
    blobs: Arc<dyn Blobs>,
    room: Arc<Semaphore>,
    reading: Arc<Semaphore>,
    limits: ConcurrencyLimits,
}

/// Keeps what one execution needs while it lives.
pub struct PinGuard {
    _pinned: Pinned,
    _room: OwnedSemaphorePermit,
}

impl Pins {
    pub fn new(blobs: Arc<dyn Blobs>, limits: ConcurrencyLimits) -> Pins {
        let reading = Arc::new(Semaphore::new(MAX_READ_AGAIN));
        Pins { blobs, room: Arc::new(Semaphore::new(MAX_PINNED)), reading, limits }
    }

    /// Pins these; none when there is no room for so many.
    pub fn pin(&self, store: &Store, needed: &[Digest]) -> Option<PinGuard> {
        let room = u32::try_from(needed.len()).ok();
        let Some(room) = room.and_then(|count| self.room.clone().try_acquire_many_owned(count).ok()) else {
            tracing::warn!(digests = needed.len(), "what an execution needs may be evicted before it is run");
            return None;
        };
        Some(PinGuard { _pinned: store.blobs.pin(&store.tenant, needed), _room: room })
    }

    /// Pins what an action needs that was accepted before this process began.
    pub async fn again(&self, scope: &Scope, action: &Digest) -> Option<PinGuard> {
        let _permit = self.reading.acquire().await.ok()?;
        let needed = async {
            let (tenant, limits) = (tenant(scope)?, self.limits.clone());
            let store = Store { blobs: self.blobs.clone(), tenant, limits };
            let permit = store.limits.walk().await?;
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
