//! The worker identities that hold leases, as far as nodes have told since this process owns the ledger, what was uploaded under
//! each lease, and whether its completion was refused. It is empty after a takeover. Whether a lease lives is always asked of the state.
//!
//! Nodes tell it through the handle and not through the writer's queue, because nothing in it is a decision; what they ask
//! is answered like any other read. Where there is one process only, nobody tells or asks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::limits::is_share_used;
use authority::{LeaseRef, Position, State, TaskId, Time};

/// Most leases whose holders are remembered, about 250 bytes each; tenants share them.
const MAX_LEASES: usize = 200_000;
/// Most leases of a holder that are looked at for one question.
const MAX_FOUND: usize = 1_000;
/// Below so many leases, those that are over are not looked for.
const MIN_PRUNED: usize = 1_024;
/// The shortest time between two searches for leases that are over.
const PRUNE_PAUSE_MS: u64 = 10_000;

/// A lease by its fencing token and its task.
pub type LeaseKey = (Position, TaskId);

/// A worker identity in one of its tenants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseHolder {
    pub tenant: Arc<str>,
    pub identity: Arc<str>,
}

/// Asks which leases a holder has that are of tasks of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindHeld {
    pub holder: LeaseHolder,
    pub queue: Arc<str>,
    /// Leases of which the asker must know whether they are held.
    pub known: Vec<LeaseKey>,
    /// The epoch and the number in the last answer: what was told before is not repeated.
    pub after: (u64, u64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldLeases {
    /// Those of the known leases that are over, or another identity's.
    pub lost: Vec<LeaseKey>,
    /// The leases that are held, and were told after the last answer.
    pub found: Vec<LeaseRef>,
    pub next: (u64, u64),
    /// There are more of them.
    pub has_more: bool,
    /// Leases of the queue and tenant that were granted before this position may be anybody's, if there are such leases.
    pub unclaimed_before: Option<Position>,
}

/// Counts an upload for one of the leases of a holder, whatever they are of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeUpload {
    pub holder: LeaseHolder,
    /// The queue whose leases are asked for with [`FindHeld`].
    pub queue: Arc<str>,
    pub bytes: u64,
    pub max_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadCharge {
    /// It counts for this lease.
    Charged(LeaseKey),
    /// No lease has so many bytes left.
    OverLimit,
    /// No lease is held, or none of which anybody knows.
    NoLease { is_any_unclaimed: bool },
}

#[derive(Default)]
pub struct LeaseHolders(Mutex<Table>);

#[derive(Default)]
struct Table {
    leases: HashMap<LeaseKey, Noted>,
    holders: HashMap<LeaseHolder, Held>,
    /// How many leases of each tenant are remembered.
    by_tenant: HashMap<Arc<str>, usize>,
    next: u64,
    prune_at: usize,
    prune_after: Time,
    /// By tenant. None until somebody asks.
    unclaimed: Option<HashMap<Arc<str>, Unclaimed>>,
}

/// Leases from before the takeover that nobody had claimed when they were last looked at.
#[derive(Default)]
struct Unclaimed {
    /// Those of the queue whose leases are asked for.
    of_queue: BTreeSet<LeaseKey>,
    others: BTreeSet<LeaseKey>,
}

struct Noted {
    lease: LeaseRef,
    /// None for an identity that reads all of its tenant.
    holder: Option<LeaseHolder>,
    number: u64,
    uploaded_bytes: u64,
    /// The last completion under it was refused without a verdict.
    is_refused: bool,
}

#[derive(Default)]
struct Held {
    /// In the order in which they were told.
    by_number: BTreeMap<u64, LeaseKey>,
    /// What was uploaded under each, the least first.
    by_upload: BTreeSet<(u64, u64)>,
}

impl LeaseHolders {
    /// Notes that an identity holds leases; none for one that reads all of its tenant anyway.
    pub fn note(&self, identity: Option<&Arc<str>>, leases: &[LeaseRef]) {
        let mut table = self.lock();
        for lease in leases {
            let tenant = lease.scope.tenant.clone();
            table.note(identity.map(|identity| LeaseHolder { tenant, identity: identity.clone() }), lease);
        }
    }

    /// Takes back what an upload that came to nothing was counted for.
    pub fn refund(&self, lease: &LeaseKey, bytes: u64) {
        let mut table = self.lock();
        let uploaded_bytes = table.leases.get(lease).map_or(0, |noted| noted.uploaded_bytes);
        table.set_uploaded(lease, uploaded_bytes.saturating_sub(bytes));
    }

    /// Notes whether the last completion under a lease was refused without a verdict: such a lease must not live forever.
    pub fn set_refused(&self, lease: &LeaseRef, is_refused: bool) {
        let mut table = self.lock();
        if is_refused {
            table.note(None, lease);
        }
        if let Some(noted) = table.leases.get_mut(&(lease.fencing_token, lease.task)) {
            noted.is_refused = is_refused;
        }
    }

    /// Those of the leases whose last completion was refused.
    pub fn refused(&self, leases: &[LeaseKey]) -> Vec<LeaseKey> {
        let table = self.lock();
        let is_refused = |key: &&LeaseKey| table.leases.get(key).is_some_and(|noted| noted.is_refused);
        leases.iter().filter(is_refused).copied().collect()
    }

    pub(crate) fn find(&self, state: &State, asked: &FindHeld, now: Time) -> HeldLeases {
        self.lock().find(state, asked, now)
    }

    pub(crate) fn charge(&self, state: &State, asked: &ChargeUpload, now: Time) -> UploadCharge {
        self.lock().charge(state, asked, now)
    }

    /// Forgets leases that are over, once they may be many.
    pub(crate) fn prune(&self, state: &State, now: Time) {
        let mut table = self.lock();
        if table.leases.len() < table.prune_at.clamp(MIN_PRUNED, MAX_LEASES / 2) || now < table.prune_after {
            return;
        }
        let over: Vec<LeaseKey> =
            table.leases.keys().filter(|key| !is_held(state, key, now)).copied().collect();
        over.iter().for_each(|key| table.forget(key));
        table.prune_at = table.leases.len() * 2;
        table.prune_after = now.plus_ms(PRUNE_PAUSE_MS);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn note(&mut self, holder: Option<LeaseHolder>, lease: &LeaseRef) {
        let (key, tenant) = ((lease.fencing_token, lease.task), &lease.scope.tenant);
        let (mut uploaded_bytes, mut is_refused) = (0, false);
        if let Some(before) = self.leases.get(&key) {
            if holder.is_none() || before.holder == holder {
                return;
            }
            // The worker came back with another key.
            (uploaded_bytes, is_refused) = (before.uploaded_bytes, before.is_refused);
            self.forget(&key);
        }
        let used = self.by_tenant.get(tenant).copied().unwrap_or(0);
        let free = MAX_LEASES.saturating_sub(self.leases.len());
        if free == 0 || is_share_used(used, free) {
            tracing::warn!(lease = %lease.task, %tenant, "too many leases: a worker cannot read its inputs");
            return;
        }
        let number = self.next;
        self.next += 1;
        *self.by_tenant.entry(tenant.clone()).or_default() += 1;
        if let Some(holder) = &holder {
            let held = self.holders.entry(holder.clone()).or_default();
            held.by_number.insert(number, key);
            held.by_upload.insert((uploaded_bytes, number));
        }
        self.leases.insert(key, Noted { lease: lease.clone(), holder, number, uploaded_bytes, is_refused });
    }

    fn forget(&mut self, key: &LeaseKey) {
        let Some(Noted { lease, holder, number, uploaded_bytes, .. }) = self.leases.remove(key) else {
            return;
        };
        if let Some(used) = self.by_tenant.get_mut(&lease.scope.tenant) {
            *used -= 1;
            if *used == 0 {
                self.by_tenant.remove(&lease.scope.tenant);
            }
        }
        let Some(holder) = holder else { return };
        if let Some(held) = self.holders.get_mut(&holder) {
            held.by_number.remove(&number);
            held.by_upload.remove(&(uploaded_bytes, number));
            if held.by_number.is_empty() {
                self.holders.remove(&holder);
            }
        }
    }

    fn set_uploaded(&mut self, key: &LeaseKey, uploaded_bytes: u64) {
        let Some(noted) = self.leases.get_mut(key) else { return };
        let held = noted.holder.as_ref().and_then(|holder| self.holders.get_mut(holder));
        if let Some(held) = held {
            held.by_upload.remove(&(noted.uploaded_bytes, noted.number));
            held.by_upload.insert((uploaded_bytes, noted.number));
        }
        noted.uploaded_bytes = uploaded_bytes;
    }

    fn find(&mut self, state: &State, asked: &FindHeld, now: Time) -> HeldLeases {
        let FindHeld { holder, queue, known, after } = asked;
        let is_others = |key: &LeaseKey| {
            let other = self.leases.get(key).and_then(|noted| noted.holder.as_ref());
            other.is_some_and(|other| other != holder)
        };
        let is_lost = |key: &&LeaseKey| !is_held(state, key, now) || is_others(key);
        let lost = known.iter().filter(is_lost).copied().collect();
        let epoch = state.owner().map_or(0, |owner| owner.epoch);
        let from = if after.0 == epoch { after.1 } else { 0 };
        let told = self.holders.get(holder).into_iter().flat_map(|held| held.by_number.range(from..));
        let mut told: Vec<(u64, LeaseKey)> =
            told.take(MAX_FOUND + 1).map(|(number, key)| (*number, *key)).collect();
        let more = if told.len() > MAX_FOUND { told.pop().map(|(number, _)| number) } else { None };
        let (held, over): (Vec<_>, Vec<_>) = told.iter().partition(|(_, key)| is_held(state, key, now));
        let is_wanted = |key: &LeaseKey| state.queue_of(key.1).is_some_and(|of| *of.name == **queue);
        let found = held.iter().filter(|(_, key)| is_wanted(key));
        let found = found.filter_map(|(_, key)| self.leases.get(key)).map(|noted| noted.lease.clone());
        let found = found.collect();
        over.iter().for_each(|(_, key)| self.forget(key));
        HeldLeases {
            lost,
            found,
            next: (epoch, more.unwrap_or(self.next)),
            has_more: more.is_some(),
            unclaimed_before: self.unclaimed_before(state, (&holder.tenant, queue), false, now),
        }
    }

    fn charge(&mut self, state: &State, asked: &ChargeUpload, now: Time) -> UploadCharge {
        let ChargeUpload { holder, queue, bytes, max_bytes } = asked;
        loop {
            let held = self.holders.get(holder);
            let least = held.and_then(|held| {
                let (uploaded_bytes, number) = held.by_upload.first()?;
                Some((*uploaded_bytes, *held.by_number.get(number)?))
            });
            let Some((uploaded_bytes, key)) = least else {
                let before = self.unclaimed_before(state, (&holder.tenant, queue), true, now);
                return UploadCharge::NoLease { is_any_unclaimed: before.is_some() };
            };
            if !is_held(state, &key, now) {
                self.forget(&key);
                continue;
            }
            let Some(sum) = uploaded_bytes.checked_add(*bytes).filter(|sum| sum <= max_bytes) else {
                return UploadCharge::OverLimit;
            };
            self.set_uploaded(&key, sum);
            return UploadCharge::Charged(key);
        }
    }

    /// The position of the takeover, if a lease of the tenant from before it is one of which nobody knows who holds it. Only a lease
    /// of the queue opens inputs; one of any queue takes uploads.
    fn unclaimed_before(
        &mut self,
        state: &State,
        (tenant, queue): (&Arc<str>, &Arc<str>),
        of_any_queue: bool,
        now: Time,
    ) -> Option<Position> {
        let since = state.owner()?.since;
        let unclaimed = self.unclaimed.get_or_insert_with(|| granted_before(state, since, queue));
        let Unclaimed { of_queue, others } = unclaimed.get_mut(tenant)?;
        let leases = &self.leases;
        let has_any = |keys: &mut BTreeSet<LeaseKey>| {
            while let Some(key) = keys.first() {
                if is_held(state, key, now) && !leases.contains_key(key) {
                    return true;
                }
                keys.pop_first();
            }
            false
        };
        (has_any(of_queue) || (of_any_queue && has_any(others))).then_some(since)
    }
}

/// The leases that were granted before a position, in all scopes.
fn granted_before(state: &State, before: Position, queue: &Arc<str>) -> HashMap<Arc<str>, Unclaimed> {
    let mut leases: HashMap<Arc<str>, Unclaimed> = HashMap::new();
    for (of, token, task) in state.leases().filter(|(_, token, _)| *token < before) {
        let Unclaimed { of_queue, others } = leases.entry(of.scope.tenant.clone()).or_default();
        if of.name == *queue { of_queue } else { others }.insert((token, task));
    }
    leases
}

/// Whether a lease could still commit a report.
fn is_held(state: &State, (token, task): &LeaseKey, now: Time) -> bool {
    let lease = state.task(*task).and_then(|task| task.lease());
    lease.is_some_and(|lease| lease.fencing_token == *token && !lease.is_over(now))
}

#[cfg(test)]
mod tests;
