//! Access of callers that are nothing but workers to the content of their tenants. They read the inputs of the executions that
//! they hold and what they uploaded themselves, and they upload while they hold a lease. Uploads are in a staging area of the
//! uploader until a report names them.
//!
//! The table of leases is kept in memory only. After a restart, a lease is known again when its worker registers or sends a
//! heartbeat; until then a read that finds nothing is answered with UNAVAILABLE, and the worker repeats it. In a cluster the
//! owner of the ledger has the table, so that a worker may use any node ([`any_node`]).

mod any_node;
mod lease_table;
mod named_digests;
mod recent_uploads;
mod watch;
mod worker_blobs;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::{LeaseRef, Scope, TaskId};
use blobs::{Blobs, Digest, Error, Refusal, Tenant};
use coordinator::Handle;
use tonic::{Code, Status};

use self::lease_table::{Holder, LeaseKey, LeaseTable, UnreadLease, key_of};
use self::recent_uploads::RecentUploads;
use self::worker_blobs::WorkerBlobs;
use super::concurrency::ConcurrencyLimits;
use super::execution::{self, InFlightExecutions, inputs};
use super::store::{self, Store};
use crate::convert::Problem;
use crate::edge::auth::{Caller, Identity};

const NO_LEASE: &str = "a worker may upload only while it holds a lease of a task of this tenant, and this identity holds none: \
                        lease a task first, or give the key the role builder";
const TOO_MANY_LEASES: &str = "too many leases are held at one time to know who uploads under which";
const NOT_YET: &str = "the server has restarted and does not know yet which workers hold its leases: register the worker or send a \
                       heartbeat, and repeat the call";

#[derive(Clone)]
pub(crate) struct WorkerAccess(Arc<Inner>);

struct Inner {
    handle: Handle,
    blobs: Arc<dyn Blobs>,
    in_flight: InFlightExecutions,
    limits: ConcurrencyLimits,
    max_upload_bytes_per_lease: u64,
    table: Mutex<LeaseTable>,
    recent: Mutex<RecentUploads>,
    /// The leases that were granted before this process started are known.
    is_loaded: AtomicBool,
    /// Leases that were granted before this position may be unclaimed at the owner.
    unclaimed_before: AtomicU64,
    /// The epoch of the owner that was last notified of leases.
    notified_epoch: AtomicU64,
    /// The epoch of an owner of an older version, which knows no table.
    older_owner: AtomicU64,
}

/// Which of some digests a holder may read in the view of its tenant.
struct Readable {
    hidden: Vec<Digest>,
    /// Why the others could not be found readable; none if they are not.
    refusal: Option<Error>,
}

impl WorkerAccess {
    pub(super) fn new(
        handle: Handle,
        blobs: Arc<dyn Blobs>,
        in_flight: InFlightExecutions,
        limits: ConcurrencyLimits,
        max_upload_bytes_per_lease: u64,
    ) -> WorkerAccess {
        WorkerAccess(Arc::new(Inner {
            handle,
            blobs,
            in_flight,
            limits,
            max_upload_bytes_per_lease,
            table: Mutex::default(),
            recent: Mutex::default(),
            is_loaded: AtomicBool::new(false),
            unclaimed_before: AtomicU64::new(0),
            notified_epoch: AtomicU64::new(0),
            older_owner: AtomicU64::new(u64::MAX),
        }))
    }

    /// The content of a tenant as a worker identity may see it.
    pub(super) fn restrict(&self, store: Store, identity: &Arc<str>) -> Store {
        let holder = Holder { tenant: store.tenant.name().into(), identity: identity.clone() };
        Store { blobs: Arc::new(WorkerBlobs::new(self.clone(), holder, &store.tenant)), ..store }
    }

    /// Notes that the caller holds leases, which were granted to it or which it has extended.
    pub(crate) async fn note_leases(&self, caller: &Caller, leases: &[LeaseRef]) {
        leases.iter().for_each(|lease| self.note_here(caller, lease));
        if self.asks_owner() {
            self.tell_owner(caller, leases).await;
        }
    }

    fn note_here(&self, caller: &Caller, lease: &LeaseRef) {
        let Some(holder) = holder(caller, lease) else {
            return self.table().claim(&lease.scope.tenant, &key_of(lease));
        };
        // A lease of an execution that is not known yet is found to be one when it is needed.
        let is_execution = self.0.in_flight.action_of(lease.task).is_some() || !self.0.in_flight.is_loaded();
        if !is_execution {
            self.table().note_other(&holder, lease);
        } else if self.table().watch(&holder, lease) {
            self.watch_until_over(lease.clone());
        }
    }

    /// Notes that a report of the caller ended a lease.
    pub(crate) fn note_end(&self, caller: &Caller, lease: &LeaseRef) {
        if let Some(holder) = holder(caller, lease) {
            self.table().end_of(&holder, &key_of(lease));
        }
    }

    /// Makes outputs that the holder uploaded visible to the tenant. Those that it did not upload are left alone.
    pub(super) async fn promote(
        &self,
        identity: &Identity,
        tenant: &Tenant,
        digests: &[Digest],
    ) -> Result<(), Error> {
        let holder = Holder { tenant: tenant.name().into(), identity: identity.id().clone() };
        let (blobs, staging_area) = (&self.0.blobs, tenant.staging_area(identity.id()));
        let absent = blobs.find_missing(&staging_area, digests).await?;
        let absent: std::collections::HashSet<_> = absent.into_iter().collect();
        let staged: Vec<Digest> = digests.iter().filter(|digest| !absent.contains(digest)).copied().collect();
        if staged.is_empty() {
            return Ok(());
        }
        // Before they leave the staging area, so that the holder can read them at every moment.
        self.recent().add(&holder, &staged);
        blobs.promote(&staging_area, tenant, &staged).await
    }

    /// Makes the outputs visible that the report of a task names which is no execution, such as the large output of a command.
    pub(crate) async fn promote_named(
        &self,
        caller: &Caller,
        lease: &LeaseRef,
        report: &str,
    ) -> Result<(), Problem> {
        let Some(identity) = caller.worker_only() else { return Ok(()) };
        let named = named_digests::find(report);
        if named.is_empty() || self.0.in_flight.action_of(lease.task).is_some() {
            return Ok(());
        }
        // Another node may have begun the execution.
        let is_elsewhere = self.0.handle.has_other_nodes()
            && self.action_of(&lease.scope, lease.task).await.map_err(execution::to_problem)?.is_some();
        if is_elsewhere || !self.is_held(lease).await.unwrap_or(false) {
            return Ok(());
        }
        let tenant =
            super::tenant(&lease.scope).map_err(|status| Problem::field("tenant", status.message()))?;
        match self.promote(identity, &tenant, &named).await {
            // A blob that is gone since is missing for whoever reads the result.
            Ok(()) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(execution::to_problem(store::status(error))),
        }
    }

    /// Finds out which digests the holder may read, and for that the inputs of its leases.
    async fn readable(
        &self,
        holder: &Holder,
        tenant: &Tenant,
        digests: &[Digest],
    ) -> Result<Readable, Error> {
        let mut hidden = self.recent().not_uploaded(holder, digests);
        if self.asks_owner()
            && let Some(readable) = self.readable_anywhere(holder, tenant, &hidden).await
        {
            return readable;
        }
        hidden = self.table().not_readable(holder, &hidden);
        let mut refusal = None;
        if !hidden.is_empty() {
            let unread = self.table().unread(holder);
            for lease in unread {
                if let Err(error) = self.find_inputs(tenant, &lease).await {
                    refusal = Some(error);
                }
                hidden = self.table().not_readable(holder, &hidden);
                if hidden.is_empty() {
                    break;
                }
            }
        }
        if self.is_anything_unclaimed(holder) {
            refusal = Some(Error::refused(Refusal::NotYet, NOT_YET));
        }
        Ok(Readable { hidden, refusal })
    }

    /// Finds the inputs of a lease: the action, its command, and the directories and files of its input root. Directories
    /// that are missing are left out, with what is below them.
    async fn find_inputs(&self, tenant: &Tenant, lease: &UnreadLease) -> Result<(), Error> {
        let _finding = lease.finding.lock().await;
        if !self.table().is_unread(&lease.key) {
            return Ok(());
        }
        let found = self.inputs_of(tenant, lease).await.map_err(|status| refused(&status))?;
        self.table().set_inputs(&lease.key, found.into());
        Ok(())
    }

    async fn inputs_of(&self, tenant: &Tenant, lease: &UnreadLease) -> Result<Vec<Digest>, Status> {
        // A task that is no execution names no inputs.
        let Some(action) = self.action_of(&lease.scope, lease.key.1).await? else { return Ok(Vec::new()) };
        let (blobs, limits) = (self.0.blobs.clone(), self.0.limits.clone());
        let store = Store { blobs, tenant: tenant.clone(), limits };
        let permit = store.walk().await?;
        let mut found = inputs::needed(&store, &permit, &action).await?;
        let bytes = size_of_val(found.as_slice());
        let sort = move || {
            found.sort_unstable();
            found.dedup();
            found
        };
        store.limits.compute.run_on(bytes, sort).await.map_err(Into::into)
    }

    /// The action of a task, if it is an execution.
    async fn action_of(&self, scope: &Scope, task: TaskId) -> Result<Option<Digest>, Status> {
        if let Some(action) = self.0.in_flight.action_of(task) {
            return Ok(Some(action));
        }
        if self.0.handle.has_other_nodes() {
            let detail = self.0.handle.task(scope.clone(), task).await.map_err(Problem::from)?;
            return Ok(detail.and_then(|detail| execution::action_of(&detail.view)));
        }
        self.0.in_flight.load(scope).await?;
        Ok(self.0.in_flight.action_of(task))
    }

    /// Counts an upload for a lease of the holder.
    async fn charge(&self, holder: &Holder, bytes: u64) -> Result<Charge, Error> {
        if self.asks_owner()
            && let Some(charge) = self.charge_anywhere(holder, bytes).await
        {
            return charge;
        }
        self.find_held(holder).await?;
        let mut table = self.table();
        match table.charge(holder, bytes, self.0.max_upload_bytes_per_lease) {
            Some(lease) => Ok(Charge { access: self.clone(), lease, bytes, is_at_owner: false }),
            None if !table.holds_any(holder) => Err(Error::refused(Refusal::Forbidden, NO_LEASE)),
            None => Err(self.too_many_bytes(bytes)),
        }
    }

    fn too_many_bytes(&self, bytes: u64) -> Error {
        let max_bytes = self.0.max_upload_bytes_per_lease;
        let why = format!(
            "a worker may upload {max_bytes} bytes for each lease that it holds, and {bytes} more are too many: the operator may \
             raise execution.scheduler.max_upload_mib_per_lease"
        );
        Error::refused(Refusal::OverLimit, &why)
    }

    /// Makes sure that a lease is known if one is held.
    async fn find_held(&self, holder: &Holder) -> Result<(), Error> {
        while !self.table().holds_any(holder) {
            let Some(lease) = self.table().newest_other(holder) else {
                let is_unclaimed = self.is_anything_unclaimed(holder);
                let (refusal, why) =
                    if is_unclaimed { (Refusal::NotYet, NOT_YET) } else { (Refusal::Forbidden, NO_LEASE) };
                return Err(Error::refused(refusal, why));
            };
            if !self.is_held(&lease).await? {
                self.table().forget_other(holder, &lease);
            } else if self.table().watch(holder, &lease) {
                self.watch_until_over(lease);
            } else if !self.table().holds_any(holder) {
                return Err(Error::refused(Refusal::OverLimit, TOO_MANY_LEASES));
            }
        }
        Ok(())
    }

    async fn is_held(&self, lease: &LeaseRef) -> Result<bool, Error> {
        let is_live = execution::is_live(&self.0.handle, lease).await;
        is_live.map_err(|error| Error::refused(Refusal::NotYet, &error.to_string()))
    }

    /// Whether a lease of the tenant may be the holder's although nobody has claimed it since the start.
    fn is_anything_unclaimed(&self, holder: &Holder) -> bool {
        !self.0.is_loaded.load(Ordering::Acquire) || self.table().has_unclaimed(&holder.tenant)
    }

    fn table(&self) -> MutexGuard<'_, LeaseTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn recent(&self) -> MutexGuard<'_, RecentUploads> {
        self.0.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An upload that counts for a lease. Dropped before it is kept, it does not count.
struct Charge {
    access: WorkerAccess,
    lease: LeaseKey,
    bytes: u64,
    is_at_owner: bool,
}

impl Charge {
    /// The upload has become a blob.
    fn keep(mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        match self.bytes {
            0 => {}
            bytes if self.is_at_owner => self.access.refund_at_owner(self.lease, bytes),
            bytes => self.access.table().refund(&self.lease, bytes),
        }
    }
}

/// The holder of a lease, if its content is restricted.
fn holder(caller: &Caller, lease: &LeaseRef) -> Option<Holder> {
    let identity = caller.worker_only()?;
    Some(Holder { tenant: lease.scope.tenant.clone(), identity: identity.id().clone() })
}

/// Why the inputs of a lease could not be found.
fn refused(status: &Status) -> Error {
    let refusal = match status.code() {
        Code::ResourceExhausted => Refusal::OverLimit,
        Code::Unavailable => Refusal::NotYet,
        _ => Refusal::Unreadable,
    };
    let why = format!("the inputs of a lease of this worker could not be found: {}", status.message());
    Error::refused(refusal, &why)
}
