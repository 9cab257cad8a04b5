//! The state: every task, and the indexes over them. It changes by events only; the indexes are derived, and
//! losing them all would be harmless.

mod api_keys;
mod change;
mod ended;
mod id_index;
mod invariants;
mod keys;
mod list;
mod queue_state;

mod ready;
mod restore;
mod slab;
mod tenants;

pub use api_keys::StoredKey;
pub use list::ListPage;
pub(crate) use ready::{QueueEntry, ReadyIndex};
pub use restore::Restore;
pub(crate) use slab::Slot;
pub use tenants::{LimitsByTenant, TenantLimits, TenantUsage};

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::event::{At, Event, InvalidTransition};
use crate::rules;
use crate::{
    HeldLease, LeaseRef, Position, Properties, PushTarget, QueueCreation, QueueDefaults, QueueKey, QueueView,
    Scope, Task, TaskId, TaskState, TaskView, Time,
};
use id_index::IdIndex;
use keys::{Eligibility, IndexKeys};
use queue_state::QueueState;
use slab::Slab;
use tenants::Tenants;

#[derive(Debug, Default)]
pub struct State {
    position: Position,
    time: Time,
    /// Delayed tasks up to this time are among the ready ones.
    ready_until: Time,
    /// Records up to here may be part of a restored snapshot already; see `restore`.
    window_end: Position,
    tasks: Slab,
    ids: IdIndex,
    queues: BTreeMap<u32, QueueState>,
    queue_ids: BTreeMap<Arc<QueueKey>, u32>,
    next_queue_id: u32,
    tenants: Tenants,
    tenant_limits: LimitsByTenant,
    queue_creation: QueueCreation,
    queue_defaults: QueueDefaults,
    /// The queue of each task, by slot.
    queue_by_slot: Vec<u32>,
    delayed: BTreeSet<(Time, Slot)>,
    due: BTreeSet<(Time, Slot)>,
    /// Leased tasks by the worker's name, over all tenants; see `leases_of`.
    workers: BTreeSet<(Arc<str>, Slot)>,
    /// From a final task to the task that does it again.
    redrives: BTreeMap<TaskId, TaskId>,
    bytes: usize,
    /// The part of `bytes` that belongs to final tasks.
    final_bytes: usize,
    /// No limit when none was set.
    max_bytes: Option<usize>,
    max_final_bytes: Option<usize>,
    owner: Option<Owner>,
    token_key: Option<TokenKey>,
    keys: BTreeMap<Arc<str>, StoredKey>,
}

/// Who may append to the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub epoch: u64,
    pub node: Arc<str>,
    pub since: Position,
}

/// The key that signs task tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenKey {
    pub id: Arc<str>,
    pub since: Position,
}

impl State {
    pub fn new() -> State {
        State::default()
    }

    /// The newest record applied.
    pub fn position(&self) -> Position {
        self.position
    }

    /// The newest time in the ledger; no command is decided at an earlier one.
    pub fn time(&self) -> Time {
        self.time
    }

    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tasks.len() == 0
    }

    /// A fair estimate of the memory in use.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn max_bytes(&self) -> usize {
        self.max_bytes.unwrap_or(usize::MAX)
    }

    /// The part of the memory in use that belongs to final tasks.
    pub fn final_bytes(&self) -> usize {
        self.final_bytes
    }

    pub fn max_final_bytes(&self) -> usize {
        self.max_final_bytes.unwrap_or(usize::MAX)
    }

    /// Replaces the defaults of queues by name.
    pub fn set_queue_defaults(&mut self, defaults: QueueDefaults) {
        for queue in self.queues.values_mut() {
            queue.settings = queue.config.settings(&defaults.of(&queue.key.name));
        }
        self.queue_defaults = defaults;
    }

    pub fn queue_defaults(&self) -> &QueueDefaults {
        &self.queue_defaults
    }

    /// Which queues a submit may create.
    pub fn set_queue_creation(&mut self, queue_creation: QueueCreation) {
        self.queue_creation = queue_creation;
    }

    /// Sets what each tenant may use at most.
    pub fn set_tenant_limits(&mut self, limits: LimitsByTenant) {
        self.tenant_limits = limits;
    }

    pub(crate) fn tenant_limits(&self, tenant: &str) -> TenantLimits {
        self.tenant_limits.of(tenant)
    }

    /// Bounds the memory: near it old final tasks are purged early, at it submits are refused.
    pub fn set_max_bytes(&mut self, max_bytes: usize) {
        self.max_bytes = Some(max_bytes);
    }

    /// Bounds the memory of final tasks: beyond it the oldest ones are purged early.
    pub fn set_max_final_bytes(&mut self, max_final_bytes: usize) {
        self.max_final_bytes = Some(max_final_bytes);
    }

    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    pub fn token_key(&self) -> Option<&TokenKey> {
        self.token_key.as_ref()
    }

    /// The task, if it is in this scope.
    pub fn view_in(&self, scope: &Scope, id: TaskId) -> Option<TaskView> {
        self.find(scope, id).map(|slot| self.view_at(slot))
    }

    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.slot_of(id).map(|slot| self.tasks.at(slot))
    }

    pub fn view(&self, id: TaskId) -> Option<TaskView> {
        self.slot_of(id).map(|slot| self.view_at(slot))
    }

    /// Whether the task may be leased now.
    pub fn is_ready(&self, id: TaskId) -> bool {
        self.slot_of(id).is_some_and(|slot| {
            matches!(
                IndexKeys::of(slot, self.tasks.at(slot), self.ready_until).eligibility,
                Eligibility::Ready(_)
            )
        })
    }

    pub fn queue_of(&self, id: TaskId) -> Option<&Arc<QueueKey>> {
        self.slot_of(id).map(|slot| &self.queue_at(slot).key)
    }

    pub fn queue_view(&self, key: &QueueKey) -> Option<QueueView> {
        self.queue_by_key(key).map(|queue| self.to_view(queue))
    }

    /// The queues of a scope, by name.
    pub fn queue_views(&self, scope: &Scope) -> Vec<QueueView> {
        let mine = self.queue_ids.iter().filter(|(key, _)| key.scope == *scope);
        mine.map(|(_, id)| self.to_view(&self.queues[id])).collect()
    }

    /// All queues, by name, over all scopes.
    pub fn all_queue_views(&self) -> impl Iterator<Item = QueueView> {
        self.queue_ids.values().map(|id| self.to_view(&self.queues[id]))
    }

    /// The scopes that have a queue of this name.
    pub fn scopes_with(&self, queue: &str) -> Vec<Scope> {
        let named = self.queue_ids.keys().filter(|key| *key.name == *queue);
        named.map(|key| key.scope.clone()).collect()
    }

    /// The queues whose tasks are pushed, by name, over all scopes.
    pub fn push_targets(&self) -> Vec<(Arc<QueueKey>, Arc<PushTarget>)> {
        let queues = self.queue_ids.iter().map(|(key, id)| (key, &self.queues[id]));
        queues.filter_map(|(key, queue)| Some((key.clone(), queue.config.push.clone()?))).collect()
    }

    /// When time alone next changes something: a tick is due, or a delayed task becomes ready.
    pub fn next_due(&self) -> Option<Time> {
        let due = self.due.first().map(|(time, _)| *time);
        let ready = self.delayed.first().map(|(time, _)| *time);
        [due, ready].into_iter().flatten().min()
    }

    /// Lets delayed tasks become ready whose time has come, and names their queues. Derived from the tasks and the
    /// time, so no record.
    pub fn advance(&mut self, now: Time) -> BTreeSet<Arc<QueueKey>> {
        self.ready_until = self.ready_until.max(now);
        let mut queues = BTreeSet::new();
        while let Some(&(time, slot)) = self.delayed.first() {
            if time > self.ready_until {
                break;
            }
            self.delayed.pop_first();
            let queue =
                self.queues.get_mut(&self.queue_by_slot[slot.0 as usize]).expect("every task has its queue");
            queue.delayed -= 1;
            let task = self.tasks.at(slot);
            if let Eligibility::Ready(entry) = IndexKeys::of(slot, task, self.ready_until).eligibility {
                queue.ready.insert(&task.properties, entry);
                queues.insert(queue.key.clone());
            }
        }
        queues
    }

    /// The time up to which delayed tasks have become ready. A lease granted at an earlier time would come too early.
    pub fn ready_until(&self) -> Time {
        self.ready_until
    }

    /// How many tasks of a scope a worker holds.
    pub fn lease_count(&self, scope: &Scope, worker: &Arc<str>) -> usize {
        self.leases_of(&scope.tenant, worker).filter(|slot| self.queue_at(*slot).key.scope == *scope).count()
    }

    /// What a worker holds in a scope.
    pub fn leases_held(&self, scope: &Scope, worker: &Arc<str>) -> Vec<HeldLease> {
        let mut held = self.leases_in_tenant(&scope.tenant, worker);
        held.retain(|held| held.lease.scope == *scope);
        held
    }

    /// What a worker holds, in all workspaces of its tenant.
    pub fn leases_in_tenant(&self, tenant: &str, worker: &Arc<str>) -> Vec<HeldLease> {
        let mine = self.leases_of(tenant, worker);
        mine.filter_map(|slot| {
            let task = self.tasks.at(slot);
            let lease = task.lease()?;
            let queue = &self.queue_at(slot).key;
            let lease_ref = LeaseRef {
                scope: queue.scope.clone(),
                worker: worker.clone(),
                task: task.id,
                attempt: task.attempt,
                fencing_token: lease.fencing_token,
            };
            let (session, contract) = (lease.session.clone(), lease.contract);
            Some(HeldLease { lease: lease_ref, queue: queue.name.clone(), session, contract })
        })
        .collect()
    }

    /// Every lease: the queue of its task, its fencing token, and the task.
    pub fn leases(&self) -> impl Iterator<Item = (&Arc<QueueKey>, Position, TaskId)> {
        self.workers.iter().filter_map(|(_, slot)| {
            let task = self.tasks.at(*slot);
            Some((&self.queue_at(*slot).key, task.lease()?.fencing_token, task.id))
        })
    }

    pub fn has_leases(&self) -> bool {
        !self.workers.is_empty()
    }

    /// The workers, each with its tenant, whose leases end when the worker is lost. Visits every lease.
    pub fn lease_holders(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let mut holders: Vec<(Arc<str>, Arc<str>)> = Vec::new();
        // The leases of a worker follow each other, and most workers serve one tenant.
        for (worker, slot) in &self.workers {
            let ends = self.tasks.at(*slot).lease().is_some_and(rules::ends_with_worker);
            let tenant = &self.queue_at(*slot).key.scope.tenant;
            let of_worker = holders.iter().rev().take_while(|(_, name)| name == worker);
            if ends && !of_worker.into_iter().any(|(name, _)| name == tenant) {
                holders.push((tenant.clone(), worker.clone()));
            }
        }
        holders
    }

    /// Builds the index for a worker profile in these queues. The index may be dropped at any time.
    pub fn index_worker_profile(&mut self, scope: &Scope, queues: &[Arc<str>], offered: &Arc<Properties>) {
        for name in queues {
            let key = QueueKey { scope: scope.clone(), name: name.clone() };
            if let Some(queue) = self.queue_ids.get(&key).and_then(|id| self.queues.get_mut(id)) {
                queue.ready.index_worker_profile(offered);
            }
        }
    }

    /// Applies the event at the next position. On `Err` nothing has changed.
    pub fn apply(&mut self, time: Time, event: &Event) -> Result<Position, InvalidTransition> {
        let at = At { position: self.position.next(), time };
        if time < self.time {
            return Err(at.invalid(format!("time falls from {} to {time}", self.time)));
        }
        if at.position > self.window_end {
            event.apply(self, at)?;
        } else {
            self.apply_in_window(event, at)?;
        }
        self.position = at.position;
        self.time = time;
        Ok(at.position)
    }

    pub(crate) fn slot_of(&self, id: TaskId) -> Option<Slot> {
        self.ids.get(&self.tasks, id)
    }

    /// The task, if it is in this scope. A foreign task and an absent one look the same.
    pub(crate) fn find(&self, scope: &Scope, id: TaskId) -> Option<Slot> {
        self.slot_of(id).filter(|slot| self.queue_at(*slot).key.scope == *scope)
    }

    pub(crate) fn task_at(&self, slot: Slot) -> &Task {
        self.tasks.at(slot)
    }

    pub(crate) fn queue_at(&self, slot: Slot) -> &QueueState {
        &self.queues[&self.queue_by_slot[slot.0 as usize]]
    }

    pub(crate) fn queue_by_key(&self, key: &QueueKey) -> Option<&QueueState> {
        self.queue_ids.get(key).map(|id| &self.queues[id])
    }

    pub fn queue_count(&self) -> usize {
        self.queues.len()
    }

    /// The tenants that have queues, by name.
    pub fn tenants(&self) -> impl Iterator<Item = (&Arc<str>, TenantUsage)> {
        self.tenants.iter()
    }

    pub fn tenant_count(&self) -> usize {
        self.tenants.len()
    }

    /// What a tenant uses; none when it has no queue.
    pub fn tenant_usage(&self, tenant: &str) -> Option<TenantUsage> {
        self.tenants.usage(tenant)
    }

    /// What the tenant of a queue uses.
    pub(crate) fn tenant_of(&self, queue: &QueueState) -> TenantUsage {
        self.tenants.at(queue.tenant)
    }

    /// Whether tasks may be submitted to a queue: it was configured, by an operator or by the server itself, or any queue
    /// will do.
    pub(crate) fn takes_submits(&self, key: &QueueKey) -> bool {
        self.queue_creation == QueueCreation::Any
            || self.queue_by_key(key).is_some_and(|queue| queue.configured.is_some())
            || self.queue_defaults.has(&key.name)
    }

    pub(crate) fn dedup(&self, key: &QueueKey, dedup_key: &str) -> Option<Slot> {
        self.queue_by_key(key)?.dedup_get(&self.tasks, dedup_key)
    }

    pub(crate) fn view_at(&self, slot: Slot) -> TaskView {
        let (task, queue) = (self.tasks.at(slot), self.queue_at(slot));
        let settings = task.settings(&queue.settings);
        TaskView { queue: queue.key.clone(), task: task.clone(), settings }
    }

    pub(crate) fn redrive_of(&self, id: TaskId) -> Option<TaskId> {
        self.redrives.get(&id).copied()
    }

    /// Tasks that a tick must handle, the most overdue first.
    pub(crate) fn due(&self, now: Time) -> impl Iterator<Item = Slot> {
        self.due.iter().take_while(move |(time, _)| *time <= now).map(|(_, slot)| *slot)
    }

    /// The tasks that a worker of this tenant holds.
    pub(crate) fn leases_of<'a>(
        &'a self,
        tenant: &'a str,
        worker: &'a Arc<str>,
    ) -> impl Iterator<Item = Slot> + 'a {
        let from = (worker.clone(), Slot(0));
        self.workers
            .range(from..)
            .take_while(move |(name, _)| name == worker)
            .map(|(_, slot)| *slot)
            .filter(move |slot| *self.queue_at(*slot).key.scope.tenant == *tenant)
    }

    fn to_view(&self, queue: &QueueState) -> QueueView {
        QueueView {
            key: queue.key.clone(),
            config: queue.config.clone(),
            settings: queue.settings.clone(),
            waiting: queue.count(TaskState::Waiting),
            delayed: queue.delayed as u64,
            leased: queue.count(TaskState::Leased),
            completed: queue.count(TaskState::Completed),
            failed: queue.count(TaskState::Failed),
            dead: queue.count(TaskState::Dead),
            oldest_waiting: queue.ready.oldest().map(|entry| self.tasks.at(entry.slot).created_at),
        }
    }
}
