//! The registry of workers that were seen since this process started. It is empty after a restart. It decides which workers
//! are offered work; a worker that it has not heard of for the heartbeat timeout loses its leases of the scheduler.
//!
//! The engine records heartbeats in it. Adapters read and write it through the handle and not through the writer's queue,
//! because nothing in it is a decision. In a cluster the registry of the owner counts.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::limits::is_share_used;
use authority::{Properties, Scope, State, Time};
use tokio::sync::watch;

use super::drained_workers::DrainedWorkers;
use super::lease_holders::LeaseHolders;
use crate::request::{Order, OrderRefusal, OrderWorker, TenantWorker, WorkerView};

/// Most workers remembered. Beyond it, an unregistered worker is dropped: one that has left, or that was seen longest ago.
const MAX_WORKERS: usize = 10_000;
/// A worker that was silent for so long is registered no more (S3-30).
const HEARTBEAT_TIMEOUT_MS: u64 = 120_000;

type Key = (Scope, Arc<str>);

pub struct Registry {
    workers: Mutex<HashMap<Key, SeenWorker>>,
    heartbeat_timeout_ms: AtomicU64,
    /// When a worker that was heard lately was last dropped for lack of capacity.
    evicted_at: AtomicU64,
    /// Whether any worker may be registered. Cleared by [`Registry::expire`].
    has_registered: AtomicBool,
    drained: DrainedWorkers,
    /// The identities that hold leases, where there are other nodes.
    pub(crate) lease_holders: LeaseHolders,
    changed: watch::Sender<()>,
    ordered: watch::Sender<()>,
}

/// How a worker made itself known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Registration {
    pub session: Option<Arc<str>>,
    pub properties: Arc<Properties>,
    pub max_concurrent_executions: u32,
    pub cpu_cores: f64,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    pub registered_at: Time,
    /// The address from which it registered, if it is known.
    pub address: Option<IpAddr>,
    /// The identity that registered it, if callers are authenticated.
    pub owner: Option<Arc<str>>,
}

/// What a worker says of its own work. For people, but for one thing: a draining worker is offered none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStatus {
    pub activity: Activity,
    pub active_tasks: u64,
    pub total_completed: u64,
    pub total_failed: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activity {
    #[default]
    Idle,
    Busy,
    Draining,
}

/// A registered worker.
#[derive(Clone, Debug, PartialEq)]
pub struct Registered {
    pub registration: Arc<Registration>,
    pub status: WorkerStatus,
    /// The operator has asked this session of the worker to stop.
    pub is_stopping: bool,
}

/// The result of recording a worker's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Registered,
    /// Registered, and asked by the operator to stop.
    Stopping,
    /// Another session of the worker has replaced this one.
    Superseded,
    /// It is not registered.
    Unknown,
}

struct SeenWorker {
    at: Time,
    registered: Option<Registered>,
    /// It unregistered, and was not seen since. It is listed no more, but was not silent either.
    has_left: bool,
    /// Whether its registration was that of a worker that had started anew.
    is_start: bool,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry {
            workers: Mutex::default(),
            heartbeat_timeout_ms: AtomicU64::new(HEARTBEAT_TIMEOUT_MS),
            evicted_at: AtomicU64::new(0),
            has_registered: AtomicBool::new(false),
            drained: DrainedWorkers::default(),
            lease_holders: LeaseHolders::default(),
            changed: watch::Sender::new(()),
            ordered: watch::Sender::new(()),
        }
    }
}

impl Registry {
    pub fn heartbeat_timeout_ms(&self) -> u64 {
        self.heartbeat_timeout_ms.load(Ordering::Relaxed)
    }

    pub fn set_heartbeat_timeout_ms(&self, timeout_ms: u64) {
        self.heartbeat_timeout_ms.store(timeout_ms, Ordering::Relaxed);
    }

    /// When a worker that was heard lately was last dropped for lack of capacity. The registry does not know about its silence.
    pub fn evicted_at(&self) -> Time {
        Time(self.evicted_at.load(Ordering::Relaxed))
    }

    /// The workers, each with its tenant, that were seen within the heartbeat timeout.
    pub fn heard_lately(&self, now: Time) -> BTreeSet<(Arc<str>, Arc<str>)> {
        let workers = self.lock();
        let heard = workers.iter().filter(|(_, known)| !self.is_silent(known, now));
        heard.map(|((scope, worker), _)| (scope.tenant.clone(), worker.clone())).collect()
    }

    /// Records that a worker was seen.
    pub fn record_heartbeat(&self, scope: &Scope, worker: &Arc<str>, now: Time) {
        let key = (scope.clone(), worker.clone());
        let mut workers = self.lock();
        match workers.get_mut(&key) {
            Some(known) => self.refresh(&key, known, now),
            None => self.insert(
                &mut workers,
                key,
                SeenWorker { at: now, registered: None, has_left: false, is_start: false },
            ),
        }
    }

    /// A request to stop is for one session: another session of the worker is not stopping.
    ///
    /// Returns whether the worker has started anew, as far as can be seen without a session: it was registered, or nothing
    /// was heard of it before. Otherwise it was told to register again, and its attempts may still run.
    pub fn register(&self, scope: &Scope, worker: &Arc<str>, registration: Registration, now: Time) -> bool {
        let key = (scope.clone(), worker.clone());
        let mut workers = self.lock();
        let before = workers.get(&key).filter(|known| !self.is_silent(known, now) && !known.has_left);
        // The same registration again is a repeat, whose first answer may be lost: it gets that answer.
        let is_repeat = |known: &&SeenWorker| {
            known.registered.as_ref().is_some_and(|before| *before.registration == registration)
        };
        let is_start = match before.filter(is_repeat) {
            Some(known) => known.is_start,
            None => before.is_none_or(|known| known.registered.is_some()),
        };
        let before = before.and_then(|known| known.registered.as_ref());
        let before = before.filter(|before| before.registration.session == registration.session);
        let is_stopping = before.is_some_and(|before| before.is_stopping);
        if before.is_none() {
            let (tenant, workspace) = (&scope.tenant, &scope.workspace);
            let session = registration.session.as_deref();
            let address = registration.address.map(tracing::field::display);
            let slots = registration.max_concurrent_executions;
            tracing::info!(%worker, %tenant, %workspace, session, address, slots, "worker registered");
        }
        let status = WorkerStatus::default();
        let registered = Some(Registered { registration: Arc::new(registration), status, is_stopping });
        self.insert(&mut workers, key, SeenWorker { at: now, registered, has_left: false, is_start });
        self.has_registered.store(true, Ordering::Relaxed);
        drop(workers);
        self.changed.send_replace(());
        is_start
    }

    /// Whether the operator has drained a worker: it is granted nothing.
    pub fn is_drained(&self, tenant: &Arc<str>, worker: &Arc<str>) -> bool {
        self.drained.contains(tenant, worker)
    }

    /// Carries out an order of the operator. Repeating it changes nothing.
    pub(crate) fn order(&self, order: &OrderWorker) -> Result<(), OrderRefusal> {
        let OrderWorker { tenant, worker, order } = order;
        let mut workers = self.lock();
        let mut known: Vec<_> = workers
            .iter_mut()
            .filter(|((scope, name), _)| scope.tenant == *tenant && name == worker)
            .map(|(_, known)| known)
            .collect();
        if known.is_empty() && !self.is_drained(tenant, worker) {
            return Err(OrderRefusal::UnknownWorker);
        }
        if *order == Order::Resume {
            self.drained.remove(tenant, worker);
        } else if !self.drained.insert(tenant, worker) {
            return Err(OrderRefusal::TooManyDrained);
        }
        for registered in known.iter_mut().filter_map(|known| known.registered.as_mut()) {
            match order {
                Order::Drain => {}
                Order::Stop => registered.is_stopping = true,
                Order::Resume => registered.is_stopping = false,
            }
        }
        drop(workers);
        tracing::info!(%worker, %tenant, ?order, "order of the operator for a worker");
        self.ordered.send_replace(());
        Ok(())
    }

    /// Watches the orders of the operator.
    pub fn watch_orders(&self) -> watch::Receiver<()> {
        self.ordered.subscribe()
    }

    /// Whether [`Registry::expire`] has anything to look at.
    pub(crate) fn has_registered(&self) -> bool {
        self.has_registered.load(Ordering::Relaxed)
    }

    /// Ends the registrations of silent workers, which [`Registry::registered`] does by itself for the worker in question.
    pub(crate) fn expire(&self, now: Time) {
        let mut workers = self.lock();
        let is_any_left = self.count_registered(&mut workers, now) > 0;
        // Before the lock is released, so that a worker that registers next is not overlooked.
        self.has_registered.store(is_any_left, Ordering::Relaxed);
    }

    /// Watches workers that register and unregister. Timeouts do not show here, but in `registered_until`.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The time until which some worker stays registered even if none is seen again; none when no worker is registered.
    pub fn registered_until(&self, now: Time) -> Option<Time> {
        let mut workers = self.lock();
        let registered = workers.iter_mut().filter_map(|(key, known)| {
            self.forget_if_silent(key, known, now);
            known.registered.as_ref().map(|_| known.at)
        });
        registered.max().map(|at| at.plus_ms(self.heartbeat_timeout_ms()))
    }

    /// The worker's registration, if it has one that has not timed out.
    pub fn registered(&self, scope: &Scope, worker: &Arc<str>, now: Time) -> Option<Registered> {
        let (mut workers, key) = (self.lock(), (scope.clone(), worker.clone()));
        let known = workers.get_mut(&key)?;
        self.forget_if_silent(&key, known, now);
        known.registered.clone()
    }

    /// Records the status that a registered worker reports. A session that was replaced reports nothing for the session
    /// that replaced it, nor keeps it registered (W11).
    pub fn record_status(
        &self,
        scope: &Scope,
        worker: &Arc<str>,
        session: Option<&Arc<str>>,
        status: WorkerStatus,
        now: Time,
    ) -> Liveness {
        let (mut workers, key) = (self.lock(), (scope.clone(), worker.clone()));
        let Some(known) = workers.get_mut(&key) else { return Liveness::Unknown };
        self.forget_if_silent(&key, known, now);
        if let Some(Registered { registration, .. }) = &known.registered
            && session.is_some()
            && registration.session.is_some()
            && registration.session.as_ref() != session
        {
            return Liveness::Superseded;
        }
        known.at = known.at.max(now);
        known.has_left = false;
        match &mut known.registered {
            Some(registered) => {
                registered.status = status;
                if registered.is_stopping { Liveness::Stopping } else { Liveness::Registered }
            }
            None => Liveness::Unknown,
        }
    }

    /// How many workers are registered, over all scopes.
    pub fn registered_count(&self, now: Time) -> usize {
        self.count_registered(&mut self.lock(), now)
    }

    /// How many workers of a tenant are registered, in all its workspaces.
    pub fn registered_in_tenant(&self, tenant: &str, now: Time) -> usize {
        let workers = self.lock();
        let mine = workers.iter().filter(|((scope, _), _)| *scope.tenant == *tenant);
        mine.filter(|(_, known)| known.registered.is_some() && !self.is_silent(known, now)).count()
    }

    fn count_registered(&self, workers: &mut HashMap<Key, SeenWorker>, now: Time) -> usize {
        let registered = workers.iter_mut().filter_map(|(key, known)| {
            self.forget_if_silent(key, known, now);
            known.registered.as_ref()
        });
        registered.count()
    }

    /// The properties that the registered workers of a scope offer.
    pub fn offered(&self, scope: &Scope, now: Time) -> Vec<Arc<Properties>> {
        let mut workers = self.lock();
        let mine = workers.iter_mut().filter(|((other, _), _)| other == scope);
        mine.filter_map(|(key, known)| {
            self.forget_if_silent(key, known, now);
            known.registered.as_ref().map(|registered| registered.registration.properties.clone())
        })
        .collect()
    }

    /// Ends a registration, unless another session of the worker than the one named has registered since.
    pub fn unregister(&self, scope: &Scope, worker: &Arc<str>, session: Option<&Arc<str>>, now: Time) {
        if let Some(known) = self.lock().get_mut(&(scope.clone(), worker.clone())) {
            let registered = known.registered.as_ref();
            let current = registered.and_then(|registered| registered.registration.session.as_ref());
            if session.is_none() || current == session {
                if !known.has_left {
                    let (tenant, workspace) = (&scope.tenant, &scope.workspace);
                    tracing::info!(%worker, %tenant, %workspace, "worker unregistered");
                }
                *known =
                    SeenWorker { at: known.at.max(now), registered: None, has_left: true, is_start: false };
                self.changed.send_replace(());
            }
        }
    }

    /// The live registrations of a worker, in all workspaces of its tenant.
    pub fn registrations(&self, tenant: &str, worker: &str, now: Time) -> Vec<Arc<Registration>> {
        let workers = self.lock();
        let mine = workers.iter().filter(|((scope, name), _)| *scope.tenant == *tenant && **name == *worker);
        let live = mine.filter(|(_, known)| !self.is_silent(known, now));
        live.filter_map(|(_, known)| Some(known.registered.as_ref()?.registration.clone())).collect()
    }

    /// The workers of a scope, by name.
    pub fn view(&self, scope: &Scope, state: &State, now: Time) -> Vec<WorkerView> {
        let mut workers = self.lock();
        let mine = workers.iter_mut().filter(|((other, _), _)| other == scope).filter_map(|(key, known)| {
            self.forget_if_silent(key, known, now);
            let worker = &key.1;
            let is_drained = self.is_drained(&scope.tenant, worker);
            // A drained worker is listed also after it has left, so that the operator sees what to resume.
            (!known.has_left || is_drained).then(|| WorkerView {
                worker: worker.clone(),
                last_heartbeat: known.at,
                active_leases: state.lease_count(scope, worker),
                registered: known.registered.clone(),
                is_drained,
            })
        });
        let mut workers: Vec<_> = mine.collect();
        workers.sort_by(|a, b| a.worker.cmp(&b.worker));
        workers
    }

    /// A worker in all workspaces of its tenant, as it was seen last, and where it is registered if it is.
    pub(crate) fn worker(
        &self,
        tenant: &Arc<str>,
        worker: &Arc<str>,
        state: &State,
        now: Time,
    ) -> Option<TenantWorker> {
        let is_drained = self.is_drained(tenant, worker);
        let mut workers = self.lock();
        let mine = workers.iter_mut().filter(|((scope, name), _)| scope.tenant == *tenant && name == worker);
        let mine = mine.map(|(key, known)| {
            self.forget_if_silent(key, known, now);
            &*known
        });
        let last = mine.max_by_key(|known| (known.registered.is_some(), known.at));
        if last.is_none() && !is_drained {
            return None;
        }
        let leases = state.leases_in_tenant(tenant, worker);
        let view = WorkerView {
            worker: worker.clone(),
            // A drained worker may have been evicted.
            last_heartbeat: last.map_or(Time::ZERO, |known| known.at),
            active_leases: leases.len(),
            registered: last.and_then(|known| known.registered.clone()),
            is_drained,
        };
        Some(TenantWorker { view, leases })
    }

    /// Evicts a worker at the limit. An unregistered worker never evicts a registered one, a worker that registers evicts one
    /// of its own tenant if it can, and so does any worker of a tenant that has its share of the registry. A worker that was
    /// silent for the timeout, or has left and given its leases back, can be evicted without harm: its absence from the
    /// registry says the same.
    fn insert(&self, workers: &mut HashMap<Key, SeenWorker>, key: Key, new: SeenWorker) {
        if workers.len() >= MAX_WORKERS && !workers.contains_key(&key) {
            let own = workers.keys().filter(|other| other.0.tenant == key.0.tenant).count();
            let has_share = is_share_used(own, MAX_WORKERS.saturating_sub(own));
            let rank = |(other, known): &(&Key, &SeenWorker)| {
                let is_heard = !self.is_silent(known, new.at) && !known.has_left;
                let is_registered = known.registered.is_some() && is_heard;
                let is_foreign = other.0.tenant != key.0.tenant;
                (has_share && is_foreign, is_registered, is_registered && is_foreign, is_heard, known.at)
            };
            let first = workers.iter().map(|known| (rank(&known), known.0)).min_by_key(|(rank, _)| *rank);
            if let Some(((_, is_registered, _, is_heard, _), other)) = first {
                if is_heard {
                    self.evicted_at.store(new.at.0, Ordering::Relaxed);
                }
                if is_registered && new.registered.is_none() {
                    return;
                }
                let other = other.clone();
                workers.remove(&other);
            }
        }
        workers.insert(key, new);
    }

    fn refresh(&self, key: &Key, known: &mut SeenWorker, now: Time) {
        self.forget_if_silent(key, known, now);
        known.at = known.at.max(now);
        known.has_left = false;
    }

    /// A timeout ends a registration even if it was not noticed in time.
    fn forget_if_silent(&self, (scope, worker): &Key, known: &mut SeenWorker, now: Time) {
        if self.is_silent(known, now) && known.registered.take().is_some() {
            let (tenant, workspace) = (&scope.tenant, &scope.workspace);
            let silent_ms = now.since_ms(known.at);
            tracing::warn!(%worker, %tenant, %workspace, silent_ms, "worker timed out: it is registered no more");
        }
    }

    fn is_silent(&self, known: &SeenWorker, now: Time) -> bool {
        now.since_ms(known.at) > self.heartbeat_timeout_ms()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, SeenWorker>> {
        // Every change is one assignment, so the map is whole also after a panic.
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
