//! Access through any node of a cluster. The owner of the ledger has the table of the identities that hold leases: every node tells
//! it before a worker has the answer that gives or extends a lease. A node that is to open content, or to take an upload, asks the owner
//! first whether the leases are held, so that what is over at one node is over at all. Only the inputs of leases are kept by each node.
//!
//! After a takeover the table is empty until workers send heartbeats or register. What a node knows of earlier is confirmed by the
//! state of the new owner, so that a worker that uses one node notices nothing. An owner of an older version has no table; a node
//! then knows the leases that were granted through it, and no others.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use authority::LeaseRef;
use blobs::{Digest, Error, Refusal, Tenant};
use coordinator::{ChargeUpload, FindHeld, Unavailable, UploadCharge};
use execution::EXECUTION_QUEUE;

use super::lease_table::{Holder, LeaseKey, Opened, key_of};
use super::{Charge, NO_LEASE, NOT_YET, Readable, WorkerAccess};
use crate::edge::auth::Caller;

impl WorkerAccess {
    /// Whether the owner of the ledger has the table of leases.
    pub(in crate::reapi) fn asks_owner(&self) -> bool {
        let handle = &self.0.handle;
        handle.has_other_nodes() && self.0.older_owner.load(Ordering::Relaxed) != handle.epoch()
    }

    /// Tells the owner which leases the caller holds. Those of callers that read all of their tenant matter only while leases from
    /// before a takeover may be anybody's.
    pub(super) async fn tell_owner(&self, caller: &Caller, leases: &[LeaseRef]) {
        let epoch = self.0.handle.epoch();
        if self.0.notified_epoch.swap(epoch, Ordering::Relaxed) != epoch {
            // A new owner waits for claims of every lease from before its takeover.
            self.0.unclaimed_before.fetch_max(self.0.handle.position().0, Ordering::Relaxed);
        }
        let identity = caller.worker_only().map(|identity| identity.id().clone());
        let before = self.0.unclaimed_before.load(Ordering::Relaxed);
        let matters = |lease: &&LeaseRef| identity.is_some() || lease.fencing_token.0 < before;
        let leases: Vec<LeaseRef> = leases.iter().filter(matters).cloned().collect();
        if leases.is_empty() {
            return;
        }
        // Without an answer the next heartbeat reports the leases again.
        if let Err(why) = self.0.handle.note_leases(identity, leases).await {
            self.note_unanswered(epoch, why);
        }
    }

    /// Finds out which digests the holder may read. None if the owner cannot be asked because its version is older.
    pub(super) async fn readable_anywhere(
        &self,
        holder: &Holder,
        tenant: &Tenant,
        digests: &[Digest],
    ) -> Option<Result<Readable, Error>> {
        // What was held when the owner was asked during this call, which is late enough.
        let (mut confirmed, mut after) = (HashSet::new(), self.table().cursor(holder));
        let (mut refusal, mut is_asked, mut unread) = (None, digests.is_empty(), None);
        let epoch = self.0.handle.epoch();
        loop {
            let Opened { hidden, unconfirmed } = self.table().opened(holder, digests, &confirmed);
            if !is_asked || !unconfirmed.is_empty() {
                let known = unconfirmed.clone();
                let asked =
                    FindHeld { holder: holder.clone(), queue: Arc::from(EXECUTION_QUEUE), known, after };
                let held = match self.0.handle.held(asked).await {
                    Ok(held) => held,
                    Err(why) => return self.note_unanswered(epoch, why).map(Err),
                };
                held.lost.iter().for_each(|key| self.table().end(key));
                confirmed.extend(unconfirmed.into_iter().filter(|key| !held.lost.contains(key)));
                confirmed.extend(held.found.iter().map(key_of));
                for lease in held.found {
                    if self.table().watch(holder, &lease) {
                        self.watch_until_over(lease);
                    }
                }
                after = held.next;
                self.table().set_cursor(holder, after);
                if let Some(before) = held.unclaimed_before {
                    self.0.unclaimed_before.fetch_max(before.0, Ordering::Relaxed);
                    refusal = Some(Error::refused(Refusal::NotYet, NOT_YET));
                }
                is_asked = !held.has_more;
                continue;
            }
            let next = match hidden.is_empty() {
                true => None,
                false => unread.get_or_insert_with(|| self.table().unread(holder).into_iter()).next(),
            };
            let Some(lease) = next else { return Some(Ok(Readable { hidden, refusal })) };
            if let Err(why) = self.find_inputs(tenant, &lease).await {
                refusal.get_or_insert(why);
            }
        }
    }

    /// Counts an upload for a lease of the holder at the owner. None if the owner cannot be asked because its version is older.
    pub(super) async fn charge_anywhere(&self, holder: &Holder, bytes: u64) -> Option<Result<Charge, Error>> {
        let (queue, max_bytes) = (Arc::from(EXECUTION_QUEUE), self.0.max_upload_bytes_per_lease);
        let asked = ChargeUpload { holder: holder.clone(), queue, bytes, max_bytes };
        let (access, epoch) = (self.clone(), self.0.handle.epoch());
        // On a task of its own: if the caller hangs up meanwhile, the upload is refunded and not left counted.
        let charging = tokio::spawn(async move {
            let charged = access.0.handle.charge_upload(asked).await;
            charged.map(|charge| match charge {
                UploadCharge::Charged(lease) => Ok(Charge { access, lease, bytes, is_at_owner: true }),
                UploadCharge::OverLimit => Err(access.too_many_bytes(bytes)),
                UploadCharge::NoLease { is_any_unclaimed: true } => {
                    Err(Error::refused(Refusal::NotYet, NOT_YET))
                }
                UploadCharge::NoLease { .. } => Err(Error::refused(Refusal::Forbidden, NO_LEASE)),
            })
        });
        match charging.await.unwrap_or(Err(Unavailable::Stopped)) {
            Ok(charge) => Some(charge),
            Err(why) => self.note_unanswered(epoch, why).map(Err),
        }
    }

    pub(super) fn refund_at_owner(&self, lease: LeaseKey, bytes: u64) {
        let handle = self.0.handle.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Without an answer the lease may upload less, which is no harm to others.
            runtime.spawn(async move { handle.refund_upload(lease, bytes).await });
        }
    }

    /// The error of a call that the owner of this epoch did not answer; none if its version is older, which is remembered.
    pub(in crate::reapi) fn note_unanswered(&self, epoch: u64, why: Unavailable) -> Option<Error> {
        if why == Unavailable::NotUnderstood {
            self.0.older_owner.store(epoch, Ordering::Relaxed);
            return None;
        }
        Some(Error::refused(Refusal::NotYet, &why.to_string()))
    }
}
