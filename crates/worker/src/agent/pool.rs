//! The slots and resources of a machine: one pool, of which every agent of the process has a share.
//!
//! Whether an agent's tasks wait is known only when one comes, so all agents ask while there is room, and what comes for
//! one when the room is gone is given back. Room that becomes free after that is kept for the agent that was turned away
//! first, until a task comes for it or a moment has passed. So no agent is kept out by busier ones, and one that has
//! nothing to do keeps nobody waiting.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::lease_table::MAX_LEASES;
use super::resources::Resources;
use crate::Config;

/// How long room is kept for the agent whose turn it is. A task that it gave back is leased again within milliseconds,
/// unless another worker has it by now.
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
    /// Who was turned away, in this order; each agent at most once.
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
    /// What was given back last for want of room.
    wanted: Resources,
    /// Since when there has been room for it.
    reserved_since: Option<Duration>,
}

/// One agent's part in the pool.
pub struct PoolHandle {
    pool: Arc<Pool>,
    id: u64,
}

/// What one attempt takes up of the pool, until this is dropped.
#[derive(Debug)]
pub struct SlotGuard {
    pool: Arc<Pool>,
    id: u64,
}

impl Pool {
    /// With as much as this worker may use.
    pub fn new(config: &Config) -> Arc<Pool> {
        let total = Resources {
            cpu_cores: config.cpu_cores,
            memory_bytes: config.memory_bytes,
            disk_bytes: config.disk_bytes,
        };
        let state = State {
            slots: config.max_concurrent_tasks.clamp(1, MAX_LEASES / 2),
            total,
            in_use: BTreeMap::new(),
            waiters: VecDeque::new(),
            last_id: 0,
        };
        Arc::new(Pool { state: Mutex::new(state), changed: watch::Sender::new(()) })
    }

    pub(super) fn join(self: &Arc<Pool>) -> PoolHandle {
        let id = self.state().next_id();
        PoolHandle { pool: self.clone(), id }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.send_replace(());
    }
}

impl PoolHandle {
    /// How many more tasks may be asked for.
    pub fn room(&self, now: Duration) -> usize {
        let mut state = self.pool.state();
        state.update_reservation(now);
        match state.waiters.front() {
            Some(waiter) if waiter.handle != self.id || waiter.reserved_since.is_none() => 0,
            _ => state.free(),
        }
    }

    /// Takes up what a task asks for. Without room for it, this share is next in line.
    pub fn take(&self, asks: &Resources, now: Duration) -> Option<SlotGuard> {
        let mut state = self.pool.state();
        state.update_reservation(now);
        let turn = state.waiters.front().filter(|waiter| waiter.reserved_since.is_some()).map(|waiter| waiter.handle);
        let is_kept_for_another = turn.is_some_and(|handle| handle != self.id);
        if is_kept_for_another || !state.has_room_for(asks) {
            state.enqueue_waiter(self.id, *asks);
            return None;
        }
        let id = state.next_id();
        state.in_use.insert(id, SlotUse { asks: *asks, has_slot: true });
        if turn.is_some() {
            state.waiters.pop_front();
            self.pool.changed.send_replace(());
        }
        Some(SlotGuard { pool: self.pool.clone(), id })
    }

    /// Of what the pool will never have enough for this.
    pub fn lacking(&self, asks: &Resources) -> Option<String> {
        asks.lacking(&self.pool.state().total)
    }

    /// When the turn of somebody is over, whether or not he uses it.
    pub fn next_due(&self, now: Duration) -> Option<Duration> {
        let mut state = self.pool.state();
        state.update_reservation(now);
        state.waiters.front().and_then(|waiter| waiter.reserved_since).map(|reserved_since| reserved_since + RESERVATION)
    }

    /// Hears of room that others have left.
    pub fn watch(&self) -> watch::Receiver<()> {
        self.pool.changed.subscribe()
    }
}

impl Drop for PoolHandle {
    fn drop(&mut self) {
        self.pool.change(|state| state.waiters.retain(|waiter| waiter.handle != self.id));
    }
}

impl SlotGuard {
    /// The command has ended: only the space of what it left behind is still taken up.
    pub fn free_slot(&self) {
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

    /// A slot is free once its command has ended; outputs that pile up meanwhile hold up new tasks all the same.
    fn free(&self) -> usize {
        let busy = self.in_use.values().filter(|guard| guard.has_slot).count();
        let free = self.slots.saturating_sub(busy);
        free.min((2 * self.slots).saturating_sub(self.in_use.len()))
    }

    fn has_room_for(&self, asks: &Resources) -> bool {
        let used = self.in_use.values().fold(Resources::default(), |used, guard| used.plus(&guard.asks));
        self.free() > 0 && used.plus(asks).lacking(&self.total).is_none()
    }

    /// Finds whose turn it is.
    fn update_reservation(&mut self, now: Duration) {
        while let Some(waiter) = self.waiters.front() {
            let has_room = self.has_room_for(&waiter.wanted);
            let reserved_since = has_room.then(|| waiter.reserved_since.unwrap_or(now));
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

    /// Who is in line already keeps his place.
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
        Pool::new(&Config { max_concurrent_tasks: slots, cpu_cores, ..config })
    }

    #[test]
    fn shares_use_no_more_slots_than_there_are_together() {
        let pool = pool(2, 0.0);
        let (a, b) = (pool.join(), pool.join());
        assert_eq!((a.room(NOW), b.room(NOW)), (2, 2), "nobody knows yet who has work");
        let in_use = [a.take(&SMALL, NOW).unwrap(), b.take(&SMALL, NOW).unwrap()];
        assert!(a.take(&SMALL, NOW).is_none());
        assert_eq!((a.room(NOW), b.room(NOW)), (0, 0));
        drop(in_use);
        assert_eq!((a.room(NOW), b.room(NOW)), (2, 0), "what is free is a's, which was turned away");
    }

    #[test]
    fn busy_shares_take_turns() {
        let pool = pool(1, 0.0);
        let handles = [pool.join(), pool.join(), pool.join()];
        let mut guard = handles[0].take(&SMALL, NOW);
        let mut order: Vec<usize> = Vec::new();
        for _ in 0..9 {
            // Tasks come for everybody, and always for the first one first.
            assert!(handles.iter().all(|handle| handle.take(&SMALL, NOW).is_none()));
            drop(guard.take());
            let asking: Vec<_> = (0..3).filter(|n| handles[*n].room(NOW) > 0).collect();
            assert_eq!(asking.len(), 1);
            order.extend(&asking);
            for handle in &handles {
                guard = guard.or_else(|| handle.take(&SMALL, NOW));
            }
        }
        assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    }

    #[test]
    fn a_turn_that_is_not_used_is_over_after_a_moment_and_with_its_share() {
        let pool = pool(1, 0.0);
        let (a, b, c) = (pool.join(), pool.join(), pool.join());
        let guard = a.take(&SMALL, NOW);
        assert!(b.take(&SMALL, NOW).is_none() && c.take(&SMALL, NOW).is_none());
        assert_eq!(a.next_due(NOW), None, "a turn begins when there is room");
        drop(guard);
        assert_eq!((a.room(NOW), b.room(NOW), c.room(NOW)), (0, 1, 0));
        assert_eq!(a.next_due(NOW), Some(NOW + RESERVATION));
        assert_eq!((b.room(NOW + RESERVATION), c.room(NOW + RESERVATION)), (0, 1));
        drop(c);
        assert_eq!((a.room(NOW + RESERVATION), b.room(NOW + RESERVATION)), (1, 1));
    }

    #[test]
    fn a_large_task_of_one_share_is_not_kept_out_by_small_ones_of_another() {
        let pool = pool(8, 4.0);
        let (a, b) = (pool.join(), pool.join());
        let small = [a.take(&SMALL, NOW).unwrap(), a.take(&SMALL, NOW).unwrap()];
        let large = Resources { cpu_cores: 3.0, ..SMALL };
        assert!(b.take(&large, NOW).is_none());
        let late = a.take(&SMALL, NOW).expect("it was on its way, and there is room");
        assert_eq!((a.room(NOW), b.room(NOW)), (0, 0), "nothing is asked for until the large one has room");
        small[0].free_slot();
        drop(small);
        assert!(a.take(&SMALL, NOW).is_none(), "it is kept for the large one");
        assert!(b.room(NOW) > 0);
        assert!(b.take(&large, NOW).is_some());
        drop(late);
    }

    #[test]
    fn room_that_one_leaves_is_heard_of_by_the_others() {
        let pool = pool(1, 0.0);
        let (a, b) = (pool.join(), pool.join());
        let heard = b.watch();
        let guard = a.take(&SMALL, NOW).unwrap();
        assert!(!heard.has_changed().unwrap());
        guard.free_slot();
        assert!(heard.has_changed().unwrap());
        assert_eq!(b.room(NOW), 1);
    }
}
