//! The slots and resources of a machine, shared by all agents of the process.
//!
//! An agent learns only from its next task whether tasks wait for it. So all agents ask while slots are free, and a task
//! that arrives when none is left is released. The agent that released a task first gets the next free slot: it is
//! reserved until a task arrives or a moment has passed. So busy agents starve no other, and idle ones delay no other.
//!
//! The size of a task is known only when it arrives. A task that does not fit beside the running ones is released at no
//! cost, so that another worker may take it, and the agent asks for no more tasks until it would fit: otherwise small
//! tasks would starve a large one. A task that can never fit is a failed attempt, because a released one would come back
//! at once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use wire::grpc::ErrorCategory;

use super::lease_table::MAX_LEASES;
use super::resources::Resources;
use crate::{Config, Failure};

/// How long a slot is reserved for the first waiter. The task that it released is leased again within milliseconds,
/// unless another worker has taken it.
const RESERVATION: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Pool {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    slots: usize,
    total: Resources,
    in_use: BTreeMap<u64, SlotUse>,
    /// The agents that had to release a task, in order; each agent at most once.
    waiters: VecDeque<Waiter>,
    last_id: u64,
}

#[derive(Debug)]
struct SlotUse {
    asks: Resources,
    has_slot: bool,
}

#[derive(Debug)]
struct Waiter {
    handle: u64,
    /// What its last released task requested.
    wanted: Resources,
    /// Since when enough has been free for it.
    reserved_since: Option<Duration>,
}

pub(super) struct PoolHandle {
    pool: Arc<Pool>,
    id: u64,
    /// Why the agent takes no tasks.
    unfit: Option<String>,
}

pub(super) enum Fit {
    Now(SlotGuard),
    Later,
    Never(Failure),
}

/// The slot and the resources of one attempt, until the guard is dropped.
#[derive(Debug)]
pub(crate) struct SlotGuard {
    pool: Arc<Pool>,
    id: u64,
}

impl Pool {
    pub fn new(config: &Config) -> Arc<Pool> {
        let state = State {
            slots: config.max_concurrent_tasks.clamp(1, MAX_LEASES / 2),
            total: config.resources,
            in_use: BTreeMap::new(),
            waiters: VecDeque::new(),
            last_id: 0,
        };
        Arc::new(Pool { state: Mutex::new(state), changed: watch::Sender::new(()) })
    }

    pub(super) fn join(self: &Arc<Pool>) -> PoolHandle {
        let id = self.state.lock().next_id();
        PoolHandle { pool: self.clone(), id, unfit: None }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock());
        self.changed.send_replace(());
    }
}

impl PoolHandle {
    pub(super) fn set_fitness(&mut self, fitness: Result<(), String>) {
        match (&self.unfit, &fitness) {
            (None, Err(why)) => tracing::warn!(why, "the worker is unfit and takes no more tasks"),
            (Some(_), Ok(())) => tracing::info!("the worker is fit and takes tasks again"),
            _ => {}
        }
        self.unfit = fitness.err();
    }

    pub(super) fn is_fit(&self) -> bool {
        self.unfit.is_none()
    }

    /// How many more tasks the agent may ask for.
    pub(super) fn free_slots(&self, now: Duration) -> usize {
        let mut state = self.pool.state.lock();
        state.update_reservation(now);
        match state.waiters.front() {
            _ if !self.is_fit() => 0,
            Some(waiter) if waiter.handle != self.id || waiter.reserved_since.is_none() => 0,
            _ => state.free_slots(),
        }
    }

    /// Takes a slot and the resources that a task requests, if they are free.
    pub(super) fn fit(&self, asks: &Resources, now: Duration) -> Fit {
        if let Some(lacking) = asks.lacking(&self.pool.state.lock().total) {
            let message = format!("the task requests more than this worker has: {lacking}");
            let failure = Failure::new(Failure::NOT_ENOUGH_RESOURCES, ErrorCategory::Infrastructure, message);
            return Fit::Never(failure.retryable());
        }
        self.is_fit().then(|| self.take(asks, now)).flatten().map_or(Fit::Later, Fit::Now)
    }

    /// If the slot or the resources are not free, this handle becomes a waiter.
    fn take(&self, asks: &Resources, now: Duration) -> Option<SlotGuard> {
        let mut state = self.pool.state.lock();
        state.update_reservation(now);
        let reserved_for = state
            .waiters
            .front()
            .filter(|waiter| waiter.reserved_since.is_some())
            .map(|waiter| waiter.handle);
        let is_reserved_for_another = reserved_for.is_some_and(|handle| handle != self.id);
        if is_reserved_for_another || !state.fits(asks) {
            state.enqueue_waiter(self.id, *asks);
            return None;
        }
        let id = state.next_id();
        state.in_use.insert(id, SlotUse { asks: *asks, has_slot: true });
        if reserved_for.is_some() {
            state.waiters.pop_front();
            self.pool.changed.send_replace(());
        }
        Some(SlotGuard { pool: self.pool.clone(), id })
    }

    pub(super) fn next_due(&self, now: Duration) -> Option<Duration> {
        let mut state = self.pool.state.lock();
        state.update_reservation(now);
        let reserved_since = state.waiters.front()?.reserved_since?;
        Some(reserved_since + RESERVATION)
    }

    pub(super) fn watch(&self) -> watch::Receiver<()> {
        self.pool.changed.subscribe()
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        self.pool.change(|state| state.waiters.retain(|waiter| waiter.handle != self.id));
    }
}

impl SlotGuard {
    /// Frees the slot after the command has ended. The disk space of its outputs stays in use.
    pub(crate) fn free_slot(&self) {
        self.pool.change(|state| {
            if let Some(guard) = state.in_use.get_mut(&self.id) {
                guard.has_slot = false;
                guard.asks = Resources { disk_bytes: guard.asks.disk_bytes, ..Resources::default() };
            }
        });
    }
}

impl Drop for SlotGuard {
    fn drop(&mut self) {
        self.pool.change(|state| {
            state.in_use.remove(&self.id);
        });
    }
}

impl State {
    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// A slot is free once its command has ended, but outputs that are still being uploaded limit new tasks too.
    fn free_slots(&self) -> usize {
        let busy = self.in_use.values().filter(|guard| guard.has_slot).count();
        let free = self.slots.saturating_sub(busy);
        free.min((2 * self.slots).saturating_sub(self.in_use.len()))
    }

    fn fits(&self, asks: &Resources) -> bool {
        let used = self.in_use.values().fold(Resources::default(), |used, guard| used.plus(&guard.asks));
        self.free_slots() > 0 && used.plus(asks).lacking(&self.total).is_none()
    }

    /// Reserves a slot for the first waiter, and drops waiters whose reservation has ended.
    fn update_reservation(&mut self, now: Duration) {
        while let Some(waiter) = self.waiters.front() {
            let fits = self.fits(&waiter.wanted);
            let reserved_since = fits.then(|| waiter.reserved_since.unwrap_or(now));
            match reserved_since {
                Some(reserved_since) if now >= reserved_since + RESERVATION => {
                    self.waiters.pop_front();
                }
                reserved_since => {
                    self.waiters[0].reserved_since = reserved_since;
                    break;
                }
            }
        }
    }

    /// A waiter keeps its position.
    fn enqueue_waiter(&mut self, handle: u64, wanted: Resources) {
        match self.waiters.iter_mut().find(|waiter| waiter.handle == handle) {
            Some(waiter) => *waiter = Waiter { handle, wanted, reserved_since: None },
            None => self.waiters.push_back(Waiter { handle, wanted, reserved_since: None }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ActionOptions;

    const NOW: Duration = Duration::from_secs(100);
    const SMALL: Resources = Resources { cpu_cores: 1.0, memory_bytes: 0, disk_bytes: 0 };

    fn pool(slots: usize, cpu_cores: f64) -> Arc<Pool> {
        let config = Config::new("http://unused", "w", ActionOptions::below("unused"));
        let resources = Resources { cpu_cores, ..Resources::default() };
        Pool::new(&Config { max_concurrent_tasks: slots, resources, ..config })
    }

    #[test]
    fn agents_together_use_no_more_slots_than_there_are() {
        let pool = pool(2, 0.0);
        let (a, b) = (pool.join(), pool.join());
        assert_eq!((a.free_slots(NOW), b.free_slots(NOW)), (2, 2), "nobody knows yet who has work");
        let in_use = [a.take(&SMALL, NOW).unwrap(), b.take(&SMALL, NOW).unwrap()];
        assert!(a.take(&SMALL, NOW).is_none());
        assert_eq!((a.free_slots(NOW), b.free_slots(NOW)), (0, 0));
        drop(in_use);
        assert_eq!(
            (a.free_slots(NOW), b.free_slots(NOW)),
            (2, 0),
            "the free slots are reserved for a, the first waiter"
        );
    }

    #[test]
    fn busy_agents_take_turns() {
        let pool = pool(1, 0.0);
        let handles = [pool.join(), pool.join(), pool.join()];
        let mut guard = handles[0].take(&SMALL, NOW);
        let mut order: Vec<usize> = Vec::new();
        for _ in 0..9 {
            // Tasks arrive for every agent, and always for the first one first.
            assert!(handles.iter().all(|handle| handle.take(&SMALL, NOW).is_none()));
            drop(guard.take());
            let asking: Vec<_> = (0..3).filter(|n| handles[*n].free_slots(NOW) > 0).collect();
            assert_eq!(asking.len(), 1);
            order.extend(&asking);
            for handle in &handles {
                guard = guard.or_else(|| handle.take(&SMALL, NOW));
            }
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn an_unused_reservation_ends_after_a_moment_and_with_its_agent() {
        let pool = pool(1, 0.0);
        let (a, b, c) = (pool.join(), pool.join(), pool.join());
        let guard = a.take(&SMALL, NOW);
        assert!(b.take(&SMALL, NOW).is_none() && c.take(&SMALL, NOW).is_none());
        assert_eq!(a.next_due(NOW), None, "a reservation begins when a slot is free");
        drop(guard);
        assert_eq!((a.free_slots(NOW), b.free_slots(NOW), c.free_slots(NOW)), (0, 1, 0));
        assert_eq!(a.next_due(NOW), Some(NOW + RESERVATION));
        assert_eq!((b.free_slots(NOW + RESERVATION), c.free_slots(NOW + RESERVATION)), (0, 1));
        drop(c);
        assert_eq!((a.free_slots(NOW + RESERVATION), b.free_slots(NOW + RESERVATION)), (1, 1));
    }

    #[test]
    fn small_tasks_of_one_agent_do_not_starve_a_large_task_of_another() {
        let pool = pool(8, 4.0);
        let (a, b) = (pool.join(), pool.join());
        let small = [a.take(&SMALL, NOW).unwrap(), a.take(&SMALL, NOW).unwrap()];
        let large = Resources { cpu_cores: 3.0, ..SMALL };
        assert!(b.take(&large, NOW).is_none());
        let late = a.take(&SMALL, NOW).expect("it was in flight, and it fits");
        assert_eq!(
            (a.free_slots(NOW), b.free_slots(NOW)),
            (0, 0),
            "nobody asks for tasks until the large one fits"
        );
        small[0].free_slot();
        drop(small);
        assert!(a.take(&SMALL, NOW).is_none(), "the slot is reserved for the large one");
        assert!(b.free_slots(NOW) > 0);
        assert!(b.take(&large, NOW).is_some());
        drop(late);
    }

    #[test]
    fn a_slot_that_one_agent_frees_notifies_the_others() {
        let pool = pool(1, 0.0);
        let (a, b) = (pool.join(), pool.join());
        let changed = b.watch();
        let guard = a.take(&SMALL, NOW).unwrap();
        assert!(!changed.has_changed().unwrap());
        guard.free_slot();
        assert!(changed.has_changed().unwrap());
        assert_eq!(b.free_slots(NOW), 1);
    }
}
