//! Limits how many calls that need much memory run at the same time. Tenants share the permits.

use std::sync::Arc;
use std::time::Duration;

use blobs::Tenant;
use tokio::time::timeout;
use tonic::Status;

use crate::convert::{Code, Problem};
use crate::edge::compute::Compute;
use crate::edge::limits::{GatePermit, PoolPermit, SharedPool, TenantGates};

/// Most trees that are sent at the same time. Each may hold 200,000 digests while its client reads.
const MAX_TREES: usize = 128;
/// Most actions and results whose trees are walked at the same time. Each walk may hold a million digests, about 300 MiB;
/// an ordinary walk takes a millisecond, so few permits serve many calls.
const MAX_WALKS: usize = 8;
/// Most uploads that are decompressed at the same time. Each may hold a window of 8 MiB while its client sends.
const MAX_DECOMPRESSORS: usize = 64;

#[derive(Clone)]
pub struct ConcurrencyLimits {
    trees: Arc<SharedPool>,
    walks: Arc<TenantGates>,
    decompressors: Arc<TenantGates>,
    /// Where messages are decoded that take long.
    pub(crate) compute: Compute,
}

pub(super) type Permit = GatePermit;

impl Default for ConcurrencyLimits {
    fn default() -> ConcurrencyLimits {
        ConcurrencyLimits::new(Compute::default())
    }
}

impl ConcurrencyLimits {
    pub(crate) fn new(compute: Compute) -> ConcurrencyLimits {
        ConcurrencyLimits {
            trees: SharedPool::new(MAX_TREES),
            walks: TenantGates::new(MAX_WALKS),
            decompressors: TenantGates::new(MAX_DECOMPRESSORS),
            compute,
        }
    }

    /// A permit to send a tree. Never waits, because the client decides how long sending takes.
    pub(super) fn tree(&self, tenant: &Tenant) -> Result<PoolPermit, Status> {
        let permit = self.trees.take(&Arc::from(tenant.name()), 1);
        permit.ok_or_else(|| Status::resource_exhausted("too many trees are being read at once"))
    }

    /// A permit to walk the trees of an action or a result. Waits as long as the call may last, because walks are short.
    pub(super) async fn walk(&self, tenant: &Tenant) -> Result<Permit, Status> {
        let permit = self.walks.acquire(tenant.name()).await;
        permit.ok_or_else(|| Status::unavailable("the server stops"))
    }

    /// A permit to decompress an upload. Holders must send at a minimum rate, so permits become free; after `patience` the
    /// client is asked to retry.
    pub(super) async fn decompressor(&self, tenant: &Tenant, patience: Duration) -> Result<Permit, Status> {
        match timeout(patience, self.decompressors.acquire(tenant.name())).await {
            Ok(Some(permit)) => Ok(permit),
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

    fn tenant(name: &str) -> Tenant {
        Tenant::new(name).unwrap()
    }

    #[tokio::test]
    async fn a6_walks_beyond_the_places_wait_for_one() {
        let (limits, mut taken) = (ConcurrencyLimits::default(), Vec::new());
        for _ in 0..MAX_WALKS - 1 {
            taken.push(limits.walk(&tenant("one")).await.unwrap());
        }
        let one = tenant("one");
        let mut next = Box::pin(limits.walk(&one));
        assert!((&mut next).now_or_never().is_none(), "the last place is for another tenant");
        taken.push(limits.walk(&tenant("another")).await.unwrap());
        assert!(limits.walk(&tenant("third")).now_or_never().is_none());
        drop(taken);
        assert!(next.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn i15_whoever_gets_no_place_to_decompress_in_time_is_told_to_come_back() {
        let (limits, patience) = (ConcurrencyLimits::default(), Duration::from_secs(10));
        let mut taken = Vec::new();
        for n in 0..MAX_DECOMPRESSORS {
            let tenant = tenant(if n % 2 == 0 { "one" } else { "another" });
            taken.push(limits.decompressor(&tenant, patience).await.unwrap());
        }
        let refused = limits.decompressor(&tenant("one"), patience).await.err().unwrap();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(refused.get_error_details().retry_info().is_some());
        taken.pop();
        assert!(limits.decompressor(&tenant("one"), patience).await.is_ok());
    }
}
