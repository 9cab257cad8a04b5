//! The registry of workers that were seen since this process started. It is advisory: it is empty after a restart, decides
//! which workers are offered work, and never changes a task.
//!
//! The engine notes in it whom it hears; adapters read and write it directly, without a place in the writer's queue,
//! because nothing in it is a decision.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::{Properties, Scope, State, Time};
use tokio::sync::watch;

use crate::request::WorkerView;

/// Most workers remembered. One that is not registered makes room, whichever was heard of longest ago.
const MAX_WORKERS: usize = 10_000;
/// A worker that was silent for so long is registered no more (S3-30).
const HEARTBEAT_TIMEOUT_MS: u64 = 120_000;

type Key = (Scope, Arc<str>);

pub struct Registry {
    heard: Mutex<HashMap<Key, Heard>>,
    heartbeat_timeout_ms: AtomicU64,
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

/// What became of a worker's words on itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    Registered,
    /// Another session of the worker has taken this one's place.
    Superseded,
    /// It is not registered.
    Unknown,
}

struct Heard {
    at: Time,
    registered: Option<Registered>,
}

impl Default for Registry {
    fn default() -> Registry {
        Registry {
            heard: Mutex::default(),
            heartbeat_timeout_ms: AtomicU64::new(HEARTBEAT_TIMEOUT_MS),
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

    /// Notes that a worker was heard of.
    pub fn record_heartbeat(&self, scope: &Scope, worker: &Arc<str>, now: Time) {
        let key = (scope.clone(), worker.clone());
        let mut heard = self.lock();
        match heard.get_mut(&key) {
            Some(known) => self.refresh(known, now),
            None => self.insert(&mut heard, key, Heard { at: now, registered: None }),
        }
    }

    pub fn register(&self, scope: &Scope, worker: &Arc<str>, registration: Registration, now: Time) {
        let status = WorkerStatus::default();
        let registered = Some(Registered { registration: Arc::new(registration), status });
        self.insert(&mut self.lock(), (scope.clone(), worker.clone()), Heard { at: now, registered });
        self.changed.send_replace(());
    }

    /// Hears of workers that register and unregister. What silence ends, `registered_until` foretells.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Until when some worker will be registered even if none is heard of again; none when no worker is.
    pub fn registered_until(&self, now: Time) -> Option<Time> {
        let mut heard = self.lock();
        let registered = heard.values_mut().filter_map(|known| {
            self.forget_if_silent(known, now);
            known.registered.as_ref().map(|_| known.at)
        });
        registered.max().map(|at| at.plus_ms(self.heartbeat_timeout_ms()))
    }

    /// The worker's registration, if it has one and was heard of lately.
    pub fn registered(&self, scope: &Scope, worker: &Arc<str>, now: Time) -> Option<Registered> {
        let mut heard = self.lock();
        let known = heard.get_mut(&(scope.clone(), worker.clone()))?;
        self.forget_if_silent(known, now);
        known.registered.clone()
    }

    /// Notes a registered worker's words on itself. A session that was replaced does not speak for the one that
    /// replaced it, nor keep it registered (W11).
    pub fn record_status(
        &self,
        scope: &Scope,
        worker: &Arc<str>,
        session: Option<&Arc<str>>,
        status: WorkerStatus,
        now: Time,
    ) -> Liveness {
        let mut heard = self.lock();
        let Some(known) = heard.get_mut(&(scope.clone(), worker.clone())) else { return Liveness::Unknown };
        self.forget_if_silent(known, now);
        if let Some(Registered { registration, .. }) = &known.registered
            && session.is_some()
            && registration.session.is_some()
            && registration.session.as_ref() != session
        {
            return Liveness::Superseded;
        }
        known.at = known.at.max(now);
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
        let mut heard = self.lock();
        let registered = heard.values_mut().filter_map(|known| {
            self.forget_if_silent(known, now);
            known.registered.as_ref()
        });
        registered.count()
    }

    /// What the registered workers of a scope offer.
    pub fn offered(&self, scope: &Scope, now: Time) -> Vec<Arc<Properties>> {
        let mut heard = self.lock();
        let mine = heard.iter_mut().filter(|((other, _), _)| other == scope);
        mine.filter_map(|(_, known)| {
            self.forget_if_silent(known, now);
            known.registered.as_ref().map(|registered| registered.registration.properties.clone())
        })
        .collect()
    }

    /// Forgets a worker, unless another session of it than the one named has registered since.
    pub fn unregister(&self, scope: &Scope, worker: &Arc<str>, session: Option<&Arc<str>>) {
        if let Entry::Occupied(known) = self.lock().entry((scope.clone(), worker.clone())) {
            let registered = known.get().registered.as_ref();
            let current = registered.and_then(|registered| registered.registration.session.as_ref());
            if session.is_none() || current == session {
                known.remove();
                self.changed.send_replace(());
            }
        }
    }

    /// The workers of a scope, by name.
    pub fn view(&self, scope: &Scope, state: &State, now: Time) -> Vec<WorkerView> {
        let mut heard = self.lock();
        let mine = heard.iter_mut().filter(|((other, _), _)| other == scope);
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

    /// Makes room where there is none. A stranger never takes the place of a worker that is registered, and one that
    /// registers takes it of its own tenant's if it can.
    fn insert(&self, heard: &mut HashMap<Key, Heard>, key: Key, new: Heard) {
        if heard.len() >= MAX_WORKERS && !heard.contains_key(&key) {
            let rank = |(other, known): &(&Key, &Heard)| {
                let is_registered = known.registered.is_some() && !self.is_silent(known, new.at);
                (is_registered, is_registered && other.0.tenant != key.0.tenant, known.at)
            };
            let first = heard.iter().map(|known| (rank(&known), known.0)).min_by_key(|(rank, _)| *rank);
            match first.map(|((is_registered, ..), other)| (is_registered, other.clone())) {
                Some((true, _)) if new.registered.is_none() => return,
                Some((_, other)) => drop(heard.remove(&other)),
                None => {}
            }
        }
        heard.insert(key, new);
    }

    fn refresh(&self, known: &mut Heard, now: Time) {
        self.forget_if_silent(known, now);
        known.at = known.at.max(now);
    }

    /// Silence ends a registration even if nobody looked while it lasted.
    fn forget_if_silent(&self, known: &mut Heard, now: Time) {
        if self.is_silent(known, now) {
            known.registered = None;
        }
    }

    fn is_silent(&self, known: &Heard, now: Time) -> bool {
        now.since_ms(known.at) > self.heartbeat_timeout_ms()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Heard>> {
        // Every change is one assignment, so the map is whole also after a panic.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
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
    fn the_worker_heard_of_longest_ago_makes_room() {
        let registry = Registry::default();
        for n in 0..=MAX_WORKERS {
            registry.record_heartbeat(&scope(), &Arc::from(format!("w{n:05}")), Time(n as u64));
        }
        let view = registry.view(&scope(), &State::new(), Time(0));
        assert_eq!(view.len(), MAX_WORKERS);
        assert_eq!(&*view[0].worker, "w00001");
    }

    #[test]
    fn strangers_push_out_nobody_who_is_registered() {
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
    fn where_all_are_registered_the_own_tenant_makes_room_and_strangers_are_not_noted() {
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
        registry.unregister(&scope(), &w, Some(&Arc::from("old")));
        assert!(registry.registered(&scope(), &w, Time(0)).is_some());
        registry.unregister(&scope(), &w, Some(&Arc::from("new")));
        assert!(registry.registered(&scope(), &w, Time(0)).is_none());
    }

    #[test]
    fn it_is_told_who_comes_and_goes_and_known_until_when_silence_is_no_answer() {
        let (registry, v, w) = (Registry::default(), Arc::from("v"), Arc::from("w"));
        let mut told = registry.watch();
        let mut is_told = || std::mem::replace(&mut told, registry.watch()).has_changed().unwrap();
        registry.record_heartbeat(&scope(), &w, Time(0));
        assert_eq!((is_told(), registry.registered_until(Time(0))), (false, None));
        registry.register(&scope(), &v, session("a"), Time(1));
        registry.register(&scope(), &w, session("b"), Time(2));
        assert!(is_told());
        let until = registry.registered_until(Time(2)).unwrap();
        assert_eq!(until, Time(2 + HEARTBEAT_TIMEOUT_MS));
        assert_eq!(registry.registered_until(until), Some(until));
        assert_eq!(registry.registered_until(until.plus_ms(1)), None);
        registry.unregister(&scope(), &w, Some(&Arc::from("other")));
        assert!(!is_told());
        registry.unregister(&scope(), &w, None);
        assert!(is_told());
    }
}
