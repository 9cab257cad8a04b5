//! Limits how many calls that need much memory run at the same time.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tonic::Status;

use crate::convert::{Code, Problem};
use crate::edge::compute::Compute;

/// Most trees that are sent at the same time. Each may hold 200,000 digests while its client reads.
const MAX_TREES: usize = 128;
/// Most actions and results whose trees are walked at the same time. Each walk may hold a million digests, about 300 MiB;
/// an ordinary walk takes a millisecond, so few permits serve many calls.
const MAX_WALKS: usize = 8;
/// Most uploads that are decompressed at the same time. Each may hold a window of 8 MiB while its client sends.
const MAX_DECOMPRESSORS: usize = 64;

#[derive(Clone)]
pub struct ConcurrencyLimits {
    trees: Arc<Semaphore>,
    walks: Arc<Semaphore>,
    decompressors: Arc<Semaphore>,
    /// Where messages are decoded that take long.
    pub(crate) compute: Compute,
}

pub(super) type Permit = OwnedSemaphorePermit;

impl Default for ConcurrencyLimits {
    fn default() -> ConcurrencyLimits {
        ConcurrencyLimits::new(Compute::default())
    }
}

impl ConcurrencyLimits {
    pub(crate) fn new(compute: Compute) -> ConcurrencyLimits {
        ConcurrencyLimits {
            trees: Arc::new(Semaphore::new(MAX_TREES)),
            walks: Arc::new(Semaphore::new(MAX_WALKS)),
            decompressors: Arc::new(Semaphore::new(MAX_DECOMPRESSORS)),
            compute,
        }
    }

    /// A permit to send a tree. Never waits, because the client decides how long sending takes.
    pub fn tree(&self) -> Result<Permit, Status> {
        let permit = self.trees.clone().try_acquire_owned();
        permit.map_err(|_| Status::resource_exhausted("too many trees are being read at once"))
    }

    /// A permit to walk the trees of an action or a result. Waits as long as the call may last, because walks are short.
    pub async fn walk(&self) -> Result<Permit, Status> {
        let permit = self.walks.clone().acquire_owned().await;
        permit.map_err(|_| Status::unavailable("the server stops"))
    }

    /// A permit to decompress an upload. Holders must send at a minimum rate, so permits become free; after `patience` the
    /// client is asked to retry.
    pub async fn decompressor(&self, patience: Duration) -> Result<Permit, Status> {
        match timeout(patience, self.decompressors.clone().acquire_owned()).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => {
                let detail = "too many compressed blobs are being received at once";
                Err(Problem::new(Code::Overloaded, detail).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tonic_types::StatusExt;

    use super::*;

    #[tokio::test]
    async fn a6_walks_beyond_the_places_wait_for_one() {
        let limits = ConcurrencyLimits::default();
        let mut taken = Vec::new();
        for _ in 0..MAX_WALKS {
            taken.push(limits.walk().await.unwrap());
        }
        let mut next = Box::pin(limits.walk());
        assert!((&mut next).now_or_never().is_none());
        taken.pop();
        assert!(next.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn i15_whoever_gets_no_place_to_decompress_in_time_is_told_to_come_back() {
        let (limits, patience) = (ConcurrencyLimits::default(), Duration::from_secs(10));
        let mut taken = Vec::new();
        for _ in 0..MAX_DECOMPRESSORS {
            taken.push(limits.decompressor(patience).await.unwrap());
        }
        let refused = limits.decompressor(patience).await.err().unwrap();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(refused.get_error_details().retry_info().is_some());
        taken.pop();
        assert!(limits.decompressor(patience).await.is_ok());
    }
}
