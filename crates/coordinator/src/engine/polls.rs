//! Long polls that wait for tasks, by queue and worker profile, first come first served. A poll is served only when a task
//! became ready in one of its queues.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use authority::command::LeaseTasks;
use authority::limits::{MAX_WORKER_PROFILES, is_share_used};
use authority::{Properties, QueueKey, Time};

use super::ReplyTo;

/// Most polls that may wait at one time; tenants share them.
pub(super) const MAX_POLLS: usize = 20_000;

/// The time between two sweeps for callers who hung up, while the limit is reached.
pub(super) const SWEEP_PAUSE_MS: u64 = 100;

type PollId = u64;
type Kinds = BTreeMap<Arc<Properties>, BTreeSet<PollId>>;

pub(super) struct Polls<T> {
    next: PollId,
    parked: HashMap<PollId, Parked<T>>,
    /// How many of them each tenant has.
    by_tenant: HashMap<Arc<str>, usize>,
    by_queue: BTreeMap<QueueKey, Kinds>,
    overdue: BTreeSet<(Time, PollId)>,
    /// Polls of drained workers, which wait beside the queues.
    drained: BTreeSet<PollId>,
    /// Queues with polls in which something became ready.
    touched: BTreeSet<QueueKey>,
    /// When polls that hung up were last swept.
    swept_at: Time,
}

struct Parked<T> {
    lease: LeaseTasks,
    until: Time,
    reply_to: T,
}

/// What came of offering ready tasks to a poll.
pub(super) enum Offer<T> {
    Taken,
    NothingFits(T),
    /// The worker is drained; the next poll of its kind is offered the same.
    Drained(T),
    /// The batch is full; the poll is offered the same again after it.
    Later(T),
}

impl<T> Default for Polls<T> {
    fn default() -> Self {
        Polls {
            next: 0,
            parked: HashMap::new(),
            by_tenant: HashMap::new(),
            by_queue: BTreeMap::new(),
            overdue: BTreeSet::new(),
            drained: BTreeSet::new(),
            touched: BTreeSet::new(),
            swept_at: Time::ZERO,
        }
    }
}

impl<T: ReplyTo> Polls<T> {
    pub(super) fn len(&self) -> usize {
        self.parked.len()
    }

    /// Whether another poll may wait. Those who hung up give way, and each kind of worker in a queue is offered
    /// every task that becomes ready in it, so there may not be too many of them.
    pub(super) fn has_capacity(&mut self, lease: &LeaseTasks, now: Time) -> bool {
        if !self.has_share(lease) && now >= self.swept_at.plus_ms(SWEEP_PAUSE_MS) {
            self.swept_at = now;
            let closed = self.parked.iter().filter(|(_, parked)| parked.reply_to.is_closed());
            for id in closed.map(|(id, _)| *id).collect::<Vec<_>>() {
                self.remove(id);
            }
        }
        let few_kinds = |key: QueueKey| {
            self.by_queue.get(&key).is_none_or(|kinds| {
                kinds.len() < MAX_WORKER_PROFILES || kinds.contains_key(&lease.properties)
            })
        };
        self.has_share(lease) && queues(lease).all(few_kinds)
    }

    /// Whether there is a poll left for the tenant.
    fn has_share(&self, lease: &LeaseTasks) -> bool {
        let used = self.by_tenant.get(&lease.scope.tenant).copied().unwrap_or(0);
        let free = MAX_POLLS.saturating_sub(self.parked.len());
        free > 0 && !is_share_used(used, free)
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.overdue.first().map(|(time, _)| *time)
    }

    pub(super) fn park(&mut self, lease: LeaseTasks, until: Time, reply_to: T) {
        let id = self.next;
        self.next += 1;
        self.insert(id, Parked { lease, until, reply_to });
    }

    /// Notes that something became ready in a queue.
    pub(super) fn touch(&mut self, queue: &QueueKey) {
        if !self.by_queue.is_empty() && self.by_queue.contains_key(queue) && !self.touched.contains(queue) {
            self.touched.insert(queue.clone());
        }
    }

    /// Lets polls of drained workers wait like all others again, because a worker was resumed.
    pub(super) fn resume(&mut self) {
        for id in std::mem::take(&mut self.drained) {
            if let Some(parked) = self.leave(id) {
                self.insert(id, parked);
            }
        }
        self.touch_all();
    }

    /// Notes that something may be ready anywhere.
    pub(super) fn touch_all(&mut self) {
        self.touched = self.by_queue.keys().cloned().collect();
    }

    /// Offers what became ready to those who wait for it. A kind of worker that got nothing is not asked again for
    /// this queue.
    pub(super) fn serve(&mut self, mut grant: impl FnMut(&LeaseTasks, T) -> Offer<T>) {
        while let Some(queue) = self.touched.pop_first() {
            let kinds: Vec<_> =
                self.by_queue.get(&queue).into_iter().flat_map(|kinds| kinds.keys().cloned()).collect();
            for kind in kinds {
                let mut is_full = false;
                while let Some(id) = self.first(&queue, &kind) {
                    let Some(Parked { lease, until, reply_to }) = self.remove(id) else { break };
                    if reply_to.is_closed() {
                        continue;
                    }
                    match grant(&lease, reply_to) {
                        Offer::Taken => {}
                        Offer::Drained(reply_to) => {
                            self.drained.insert(id);
                            self.overdue.insert((until, id));
                            self.hold(id, Parked { lease, until, reply_to });
                        }
                        Offer::NothingFits(reply_to) => {
                            self.insert(id, Parked { lease, until, reply_to });
                            break;
                        }
                        Offer::Later(reply_to) => {
                            self.insert(id, Parked { lease, until, reply_to });
                            is_full = true;
                            break;
                        }
                    }
                }
                if is_full {
                    self.touched.insert(queue);
                    return;
                }
            }
        }
    }

    pub(super) fn take_overdue(&mut self, now: Time) -> Vec<T> {
        let mut out = Vec::new();
        while let Some(&(time, id)) = self.overdue.first() {
            if time > now {
                break;
            }
            out.extend(self.remove(id).map(|parked| parked.reply_to));
        }
        out
    }

    /// Everyone, in the order in which they came.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.by_queue.clear();
        self.by_tenant.clear();
        self.overdue.clear();
        self.drained.clear();
        self.touched.clear();
        let mut parked: Vec<_> = std::mem::take(&mut self.parked).into_iter().collect();
        parked.sort_unstable_by_key(|(id, _)| *id);
        parked.into_iter().map(|(_, parked)| parked.reply_to)
    }

    fn first(&self, queue: &QueueKey, kind: &Arc<Properties>) -> Option<PollId> {
        self.by_queue.get(queue)?.get(kind)?.first().copied()
    }

    fn insert(&mut self, id: PollId, parked: Parked<T>) {
        for key in queues(&parked.lease) {
            let kinds = self.by_queue.entry(key).or_default();
            kinds.entry(parked.lease.properties.clone()).or_default().insert(id);
        }
        self.overdue.insert((parked.until, id));
        self.hold(id, parked);
    }

    /// Holds a poll, which counts for its tenant.
    fn hold(&mut self, id: PollId, parked: Parked<T>) {
        let tenant = &parked.lease.scope.tenant;
        match self.by_tenant.get_mut(tenant) {
            Some(count) => *count += 1,
            None => drop(self.by_tenant.insert(tenant.clone(), 1)),
        }
        self.parked.insert(id, parked);
    }

    /// Holds a poll no more.
    fn leave(&mut self, id: PollId) -> Option<Parked<T>> {
        let parked = self.parked.remove(&id)?;
        if let Some(count) = self.by_tenant.get_mut(&parked.lease.scope.tenant) {
            *count -= 1;
            if *count == 0 {
                self.by_tenant.remove(&parked.lease.scope.tenant);
            }
        }
        Some(parked)
    }

    fn remove(&mut self, id: PollId) -> Option<Parked<T>> {
        let parked = self.leave(id)?;
        self.overdue.remove(&(parked.until, id));
        self.drained.remove(&id);
        for key in queues(&parked.lease) {
            let Some(kinds) = self.by_queue.get_mut(&key) else { continue };
            if let Some(ids) = kinds.get_mut(&parked.lease.properties) {
                ids.remove(&id);
                if ids.is_empty() {
                    kinds.remove(&parked.lease.properties);
                }
            }
            if kinds.is_empty() {
                self.by_queue.remove(&key);
            }
        }
        Some(parked)
    }
}

fn queues(lease: &LeaseTasks) -> impl Iterator<Item = QueueKey> {
    lease.queues.iter().map(|name| QueueKey { scope: lease.scope.clone(), name: name.clone() })
}
