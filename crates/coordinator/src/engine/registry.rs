//! The registry of workers that were seen since this process started. It is empty after a restart. It decides which workers
//! are offered work; a worker that it has not heard of for the heartbeat timeout loses its leases of the scheduler.
//!
//! The engine records heartbeats in it. Adapters read and write it directly and not through the writer's queue, because
//! nothing in it is a decision.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::{Properties, Scope, State, Time};
use tokio::sync::watch;

use crate::request::WorkerView;

/// Most workers remembered. Beyond it, the unregistered worker that was seen longest ago is dropped.
const MAX_WORKERS: usize = 10_000;
/// A worker that was silent for so long is registered no more (S3-30).
const HEARTBEAT_TIMEOUT_MS: u64 = 120_000;

type Key = (Scope, Arc<str>);

pub struct Registry {
    workers: Mutex<HashMap<Key, SeenWorker>>,
    heartbeat_timeout_ms: AtomicU64,
    /// When a worker was last dropped for lack of capacity.
    evicted_at: AtomicU64,
    changed: watch::Sender<()>,
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
}

/// The result of recording a worker's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Registered,
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
}

impl Default for Registry {
    fn default() -> Registry {
        Registry {
            workers: Mutex::default(),
            heartbeat_timeout_ms: AtomicU64::new(HEARTBEAT_TIMEOUT_MS),
            evicted_at: AtomicU64::new(0),
            changed: watch::Sender::new(()),
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

    /// When a worker was last dropped for lack of capacity. The registry does not know about its silence.
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
            Some(known) => self.refresh(known, now),
            None => self.insert(&mut workers, key, SeenWorker { at: now, registered: None, has_left: false }),
        }
    }

    pub fn register(&self, scope: &Scope, worker: &Arc<str>, registration: Registration, now: Time) {
        let status = WorkerStatus::default();
        let registered = Some(Registered { registration: Arc::new(registration), status });
        self.insert(
            &mut self.lock(),
            (scope.clone(), worker.clone()),
            SeenWorker { at: now, registered, has_left: false },
        );
        self.changed.send_replace(());
    }

    /// Watches workers that register and unregister. Timeouts do not show here, but in `registered_until`.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// The time until which some worker stays registered even if none is seen again; none when no worker is registered.
    pub fn registered_until(&self, now: Time) -> Option<Time> {
        let mut workers = self.lock();
        let registered = workers.values_mut().filter_map(|known| {
            self.forget_if_silent(known, now);
            known.registered.as_ref().map(|_| known.at)
        });
        registered.max().map(|at| at.plus_ms(self.heartbeat_timeout_ms()))
    }

    /// The worker's registration, if it has one that has not timed out.
    pub fn registered(&self, scope: &Scope, worker: &Arc<str>, now: Time) -> Option<Registered> {
        let mut workers = self.lock();
        let known = workers.get_mut(&(scope.clone(), worker.clone()))?;
        self.forget_if_silent(known, now);
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
        let mut workers = self.lock();
        let Some(known) = workers.get_mut(&(scope.clone(), worker.clone())) else { return Liveness::Unknown };
        self.forget_if_silent(known, now);
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
                Liveness::Registered
            }
            None => Liveness::Unknown,
        }
    }

    /// How many workers are registered, over all scopes.
    pub fn registered_count(&self, now: Time) -> usize {
        let mut workers = self.lock();
        let registered = workers.values_mut().filter_map(|known| {
            self.forget_if_silent(known, now);
            known.registered.as_ref()
        });
        registered.count()
    }

    /// The properties that the registered workers of a scope offer.
    pub fn offered(&self, scope: &Scope, now: Time) -> Vec<Arc<Properties>> {
        let mut workers = self.lock();
        let mine = workers.iter_mut().filter(|((other, _), _)| other == scope);
        mine.filter_map(|(_, known)| {
            self.forget_if_silent(known, now);
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
                *known = SeenWorker { at: known.at.max(now), registered: None, has_left: true };
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
        let mine = workers.iter_mut().filter(|((other, _), known)| other == scope && !known.has_left);
        let mut workers: Vec<_> = mine
            .map(|((_, worker), known)| {
                self.forget_if_silent(known, now);
                WorkerView {
                    worker: worker.clone(),
                    last_heartbeat: known.at,
                    active_leases: state.lease_count(scope, worker),
                    registered: known.registered.clone(),
                }
            })
            .collect();
        workers.sort_by(|a, b| a.worker.cmp(&b.worker));
        workers
    }

    /// Evicts a worker at the limit. An unregistered worker never evicts a registered one, and a worker that registers
    /// evicts one of its own tenant if it can.
    fn insert(&self, workers: &mut HashMap<Key, SeenWorker>, key: Key, new: SeenWorker) {
        if workers.len() >= MAX_WORKERS && !workers.contains_key(&key) {
            let rank = |(other, known): &(&Key, &SeenWorker)| {
                let is_registered = known.registered.is_some() && !self.is_silent(known, new.at);
                (is_registered, is_registered && other.0.tenant != key.0.tenant, known.at)
            };
            let first = workers.iter().map(|known| (rank(&known), known.0)).min_by_key(|(rank, _)| *rank);
            match first.map(|((is_registered, ..), other)| (is_registered, other.clone())) {
                Some((true, _)) if new.registered.is_none() => {
                    self.evicted_at.store(new.at.0, Ordering::Relaxed);
                    return;
                }
                Some((_, other)) => {
                    self.evicted_at.store(new.at.0, Ordering::Relaxed);
                    workers.remove(&other);
                }
                None => {}
            }
        }
        workers.insert(key, new);
    }

    fn refresh(&self, known: &mut SeenWorker, now: Time) {
        self.forget_if_silent(known, now);
        known.at = known.at.max(now);
        known.has_left = false;
    }

    /// A timeout ends a registration even if it was not noticed in time.
    fn forget_if_silent(&self, known: &mut SeenWorker, now: Time) {
        if self.is_silent(known, now) {
            known.registered = None;
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
mod tests {
    use super::*;

    fn scope() -> Scope {
        Scope { tenant: Arc::from("t"), workspace: Arc::from("w") }
    }

    fn session(name: &str) -> Registration {
        Registration { session: Some(Arc::from(name)), ..Registration::default() }
    }

    #[test]
    fn the_worker_seen_longest_ago_is_evicted() {
        let registry = Registry::default();
        for n in 0..=MAX_WORKERS {
            registry.record_heartbeat(&scope(), &Arc::from(format!("w{n:05}")), Time(n as u64));
        }
        let view = registry.view(&scope(), &State::new(), Time(0));
        assert_eq!(view.len(), MAX_WORKERS);
        assert_eq!(&*view[0].worker, "w00001");
    }

    #[test]
    fn unregistered_workers_evict_no_registered_one() {
        let (registry, w, silent) = (Registry::default(), Arc::from("w"), Arc::from("silent"));
        registry.register(&scope(), &silent, Registration::default(), Time(0));
        registry.register(&scope(), &w, Registration::default(), Time(1));
        for n in 0..=MAX_WORKERS {
            registry.record_heartbeat(
                &scope(),
                &Arc::from(format!("stranger{n}")),
                Time(HEARTBEAT_TIMEOUT_MS + 1),
            );
        }
        assert!(registry.registered(&scope(), &w, Time(HEARTBEAT_TIMEOUT_MS + 1)).is_some());
        let view = registry.view(&scope(), &State::new(), Time(HEARTBEAT_TIMEOUT_MS + 1));
        assert_eq!(view.len(), MAX_WORKERS);
        assert!(view.iter().all(|known| known.worker != silent), "its silence ended its registration");
    }

    #[test]
    fn where_all_are_registered_the_own_tenant_is_evicted_and_unregistered_workers_are_not_recorded() {
        let (registry, first) = (Registry::default(), Arc::from("first"));
        let other = Scope { tenant: Arc::from("other"), ..scope() };
        registry.register(&other, &first, Registration::default(), Time(0));
        for n in 1..=MAX_WORKERS {
            registry.register(
                &scope(),
                &Arc::from(format!("w{n:05}")),
                Registration::default(),
                Time(n as u64),
            );
        }
        let now = Time(MAX_WORKERS as u64);
        assert_eq!(registry.registered_count(now), MAX_WORKERS);
        assert!(registry.registered(&other, &first, now).is_some(), "it is another tenant's");
        assert!(registry.registered(&scope(), &Arc::from("w00001"), now).is_none());
        registry.record_heartbeat(&scope(), &Arc::from("stranger"), now);
        assert_eq!(registry.registered_count(now), MAX_WORKERS);
    }

    #[test]
    fn s3_38_a_silent_worker_is_registered_no_more_and_one_that_is_heard_of_stays() {
        let (registry, w) = (Registry::default(), Arc::from("w"));
        registry.register(&scope(), &w, Registration::default(), Time(0));
        assert!(registry.registered(&scope(), &w, Time(HEARTBEAT_TIMEOUT_MS)).is_some());
        registry.record_heartbeat(&scope(), &w, Time(HEARTBEAT_TIMEOUT_MS));
        assert!(registry.registered(&scope(), &w, Time(2 * HEARTBEAT_TIMEOUT_MS)).is_some());
        assert!(registry.registered(&scope(), &w, Time(2 * HEARTBEAT_TIMEOUT_MS + 1)).is_none());
        registry.record_heartbeat(&scope(), &w, Time(2 * HEARTBEAT_TIMEOUT_MS + 2));
        assert!(
            registry.registered(&scope(), &w, Time(2 * HEARTBEAT_TIMEOUT_MS + 2)).is_none(),
            "it stays so"
        );
    }

    #[test]
    fn a_worker_heard_of_after_its_silence_has_to_register_again() {
        let (registry, w) = (Registry::default(), Arc::from("w"));
        registry.register(&scope(), &w, Registration::default(), Time(0));
        let status = WorkerStatus { activity: Activity::Busy, ..WorkerStatus::default() };
        assert_eq!(registry.record_status(&scope(), &w, None, status, Time(1)), Liveness::Registered);
        assert_eq!(registry.registered(&scope(), &w, Time(1)).unwrap().status, status);
        assert_eq!(
            registry.record_status(&scope(), &w, None, status, Time(HEARTBEAT_TIMEOUT_MS + 2)),
            Liveness::Unknown
        );
    }

    #[test]
    fn w11_a_session_that_was_replaced_speaks_for_nobody() {
        let (registry, w) = (Registry::default(), Arc::from("w"));
        let (old, new) = (Arc::from("old"), Arc::from("new"));
        registry.register(&scope(), &w, session("new"), Time(0));
        let status = WorkerStatus { activity: Activity::Draining, ..WorkerStatus::default() };
        assert_eq!(registry.record_status(&scope(), &w, Some(&old), status, Time(1)), Liveness::Superseded);
        assert_eq!(registry.registered(&scope(), &w, Time(1)).unwrap().status, WorkerStatus::default());
        // Nor does its being alive keep the other registered.
        let late = Time(HEARTBEAT_TIMEOUT_MS);
        assert_eq!(registry.record_status(&scope(), &w, Some(&old), status, late), Liveness::Superseded);
        assert!(registry.registered(&scope(), &w, Time(HEARTBEAT_TIMEOUT_MS + 1)).is_none());
        registry.register(&scope(), &w, session("new"), late);
        assert_eq!(registry.record_status(&scope(), &w, Some(&new), status, late), Liveness::Registered);
    }

    #[test]
    fn only_the_newest_session_unregisters_a_worker() {
        let (registry, w) = (Registry::default(), Arc::from("w"));
        registry.register(&scope(), &w, session("new"), Time(0));
        registry.unregister(&scope(), &w, Some(&Arc::from("old")), Time(9));
        assert!(registry.registered(&scope(), &w, Time(0)).is_some());
        registry.unregister(&scope(), &w, Some(&Arc::from("new")), Time(9));
        assert!(registry.registered(&scope(), &w, Time(0)).is_none());
    }

    #[test]
    fn registrations_are_watched_and_their_end_by_silence_is_known() {
        let (registry, v, w) = (Registry::default(), Arc::from("v"), Arc::from("w"));
        let mut watch = registry.watch();
        let mut has_changed = || std::mem::replace(&mut watch, registry.watch()).has_changed().unwrap();
        registry.record_heartbeat(&scope(), &w, Time(0));
        assert_eq!((has_changed(), registry.registered_until(Time(0))), (false, None));
        registry.register(&scope(), &v, session("a"), Time(1));
        registry.register(&scope(), &w, session("b"), Time(2));
        assert!(has_changed());
        let until = registry.registered_until(Time(2)).unwrap();
        assert_eq!(until, Time(2 + HEARTBEAT_TIMEOUT_MS));
        assert_eq!(registry.registered_until(until), Some(until));
        assert_eq!(registry.registered_until(until.plus_ms(1)), None);
        registry.unregister(&scope(), &w, Some(&Arc::from("other")), Time(9));
        assert!(!has_changed());
        registry.unregister(&scope(), &w, None, Time(9));
        assert!(has_changed());
    }
}
