//! The leases that worker identities hold, with what may be read and uploaded under each. Nothing here waits.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use authority::{LeaseRef, Scope};
use blobs::Digest;
use tokio::sync::Mutex;

/// Most leases whose end is waited for. A worker reads nothing under one beyond them.
const MAX_WATCHED_LEASES: usize = 200_000;
/// Most digests of inputs over all leases, each counted for every lease that has it; they take about 500 MiB. Beyond them the
/// set that was found first is dropped, and found again when it is needed: workers read their inputs soon after a grant.
const MAX_INPUT_DIGESTS: usize = 4_000_000;
/// Most leases of an identity that are of no execution. They are needed only when a task uploads its output.
const MAX_OTHER_LEASES: usize = 1_024;
/// Most holders for which a position in the answers of the ledger's owner is kept. Beyond it, the owner answers with everything again.
const MAX_CURSORS: usize = 10_000;

pub(super) use coordinator::{LeaseHolder as Holder, LeaseKey};

pub(super) fn key_of(lease: &LeaseRef) -> LeaseKey {
    (lease.fencing_token, lease.task)
}

#[derive(Default)]
pub(super) struct LeaseTable {
    holders: HashMap<Holder, Held>,
    /// The holders of the watched leases.
    watched: HashMap<LeaseKey, Holder>,
    /// Leases that were granted before this process started and whose holders have not come back, by tenant.
    unclaimed: HashMap<Arc<str>, HashSet<LeaseKey>>,
    /// The leases whose inputs are known, in the order in which they were found.
    found: BTreeMap<u64, LeaseKey>,
    next_found: u64,
    input_digests: usize,
    /// Up to where the answers of the ledger's owner about each holder are known.
    cursors: HashMap<Holder, (u64, u64)>,
}

/// Which digests leases open that are held as far as is known.
pub(super) struct Opened {
    /// No lease opens these.
    pub hidden: Vec<Digest>,
    /// Leases that open the others, and of which the owner has not said that they are held.
    pub unconfirmed: Vec<LeaseKey>,
}

#[derive(Default)]
struct Held {
    /// By fencing token, so that the newest is the last.
    watched: BTreeMap<LeaseKey, WatchedLease>,
    /// Leases of other tasks, which may be over.
    others: BTreeMap<LeaseKey, LeaseRef>,
    /// How many leases have each input.
    readable: HashMap<Digest, u32>,
}

struct WatchedLease {
    scope: Scope,
    inputs: Option<Inputs>,
    /// Held while the inputs are found, so that they are found once.
    finding: Arc<Mutex<()>>,
    uploaded_bytes: u64,
}

impl WatchedLease {
    fn has_input(&self, digest: &Digest) -> bool {
        self.inputs.as_ref().is_some_and(|inputs| inputs.digests.binary_search(digest).is_ok())
    }
}

struct Inputs {
    /// Sorted.
    digests: Arc<[Digest]>,
    /// When they were found.
    number: u64,
}

/// A lease whose inputs are not known yet.
pub(super) struct UnreadLease {
    pub key: LeaseKey,
    pub scope: Scope,
    pub finding: Arc<Mutex<()>>,
}

impl LeaseTable {
    /// Notes the holder of a lease whose end the caller waits for. False if it is known already or there are too many.
    pub(super) fn watch(&mut self, holder: &Holder, lease: &LeaseRef) -> bool {
        let key = key_of(lease);
        self.claim(&holder.tenant, &key);
        match self.watched.get(&key) {
            Some(other) if other == holder => return false,
            // The worker came back with another key. The end of the lease is waited for already.
            Some(other) => {
                let before = self.holders.get(other).and_then(|held| held.watched.get(&key));
                let uploaded_bytes = before.map_or(0, |lease| lease.uploaded_bytes);
                self.end(&key);
                self.insert(holder, key, &lease.scope, uploaded_bytes);
                return false;
            }
            None if self.watched.len() >= MAX_WATCHED_LEASES => {
                tracing::warn!(lease = %lease.task, "too many leases: a worker cannot read its inputs");
                return false;
            }
            None => {}
        }
        self.insert(holder, key, &lease.scope, 0);
        true
    }

    fn insert(&mut self, holder: &Holder, key: LeaseKey, scope: &Scope, uploaded_bytes: u64) {
        let (scope, finding) = (scope.clone(), Arc::default());
        let lease = WatchedLease { scope, inputs: None, finding, uploaded_bytes };
        let held = self.holders.entry(holder.clone()).or_default();
        held.others.remove(&key);
        held.watched.insert(key, lease);
        self.watched.insert(key, holder.clone());
    }

    /// Notes a lease of a task that is no execution.
    pub(super) fn note_other(&mut self, holder: &Holder, lease: &LeaseRef) {
        let key = key_of(lease);
        self.claim(&holder.tenant, &key);
        let held = self.holders.entry(holder.clone()).or_default();
        if !held.watched.contains_key(&key) {
            held.others.insert(key, lease.clone());
        }
        if held.others.len() > MAX_OTHER_LEASES {
            held.others.pop_first();
        }
    }

    /// The newest lease of a task that is no execution; it may be over.
    pub(super) fn newest_other(&self, holder: &Holder) -> Option<LeaseRef> {
        let (_, lease) = self.holders.get(holder)?.others.last_key_value()?;
        Some(lease.clone())
    }

    /// Forgets a lease of a task that is no execution, which is over.
    pub(super) fn forget_other(&mut self, holder: &Holder, lease: &LeaseRef) {
        if let Some(held) = self.holders.get_mut(holder) {
            held.others.remove(&key_of(lease));
        }
        self.drop_empty(holder);
    }

    /// Forgets a lease that is over.
    pub(super) fn end(&mut self, key: &LeaseKey) {
        self.drop_inputs(key);
        if let Some(holder) = self.watched.remove(key) {
            if let Some(held) = self.holders.get_mut(&holder) {
                held.watched.remove(key);
            }
            self.drop_empty(&holder);
        }
    }

    /// Forgets a lease that its holder has reported on.
    pub(super) fn end_of(&mut self, holder: &Holder, key: &LeaseKey) {
        self.end(key);
        if let Some(held) = self.holders.get_mut(holder) {
            held.others.remove(key);
        }
        self.drop_empty(holder);
    }

    fn drop_empty(&mut self, holder: &Holder) {
        if self.holders.get(holder).is_some_and(|held| held.watched.is_empty() && held.others.is_empty()) {
            self.holders.remove(holder);
        }
    }

    /// Whether a lease is held that lives, as far as is known.
    pub(super) fn holds_any(&self, holder: &Holder) -> bool {
        self.holders.get(holder).is_some_and(|held| !held.watched.is_empty())
    }

    /// Those of the digests that are inputs of no lease of the holder, as far as inputs are known.
    pub(super) fn not_readable(&self, holder: &Holder, digests: &[Digest]) -> Vec<Digest> {
        let readable = self.holders.get(holder).map(|held| &held.readable);
        let is_readable = |digest: &&Digest| readable.is_some_and(|readable| readable.contains_key(digest));
        digests.iter().filter(|digest| !is_readable(digest)).copied().collect()
    }

    /// Which leases open the digests. Of several that do, one that is confirmed is preferred.
    pub(super) fn opened(
        &self,
        holder: &Holder,
        digests: &[Digest],
        confirmed: &HashSet<LeaseKey>,
    ) -> Opened {
        let hidden = self.not_readable(holder, digests);
        let mut opened = Opened { hidden, unconfirmed: Vec::new() };
        let Some(held) = self.holders.get(holder) else { return opened };
        let mut open: Vec<Digest> =
            digests.iter().filter(|digest| held.readable.contains_key(digest)).copied().collect();
        // The digests of a call are mostly those of one action, so that few leases are looked for.
        while let Some(digest) = open.pop() {
            let mut openers =
                held.watched.iter().rev().filter(|(_, lease)| lease.has_input(&digest)).peekable();
            let first = openers.peek().copied();
            let Some((key, lease)) = openers.find(|(key, _)| confirmed.contains(key)).or(first) else {
                opened.hidden.push(digest);
                continue;
            };
            open.retain(|digest| !lease.has_input(digest));
            if !confirmed.contains(key) {
                opened.unconfirmed.push(*key);
            }
        }
        opened
    }

    /// Up to where the answers of the ledger's owner about a holder are known: its epoch and a number.
    pub(super) fn cursor(&self, holder: &Holder) -> (u64, u64) {
        self.cursors.get(holder).copied().unwrap_or_default()
    }

    pub(super) fn set_cursor(&mut self, holder: &Holder, cursor: (u64, u64)) {
        if self.cursors.len() >= MAX_CURSORS {
            self.cursors.clear();
        }
        let last = self.cursors.entry(holder.clone()).or_default();
        *last = cursor.max(*last);
    }

    /// The leases of a holder whose inputs are not known, the newest first.
    pub(super) fn unread(&self, holder: &Holder) -> Vec<UnreadLease> {
        let leases = self.holders.get(holder).into_iter().flat_map(|held| held.watched.iter().rev());
        leases
            .filter(|(_, lease)| lease.inputs.is_none())
            .map(|(key, lease)| UnreadLease {
                key: *key,
                scope: lease.scope.clone(),
                finding: lease.finding.clone(),
            })
            .collect()
    }

    /// Whether inputs of a lease have to be found.
    pub(super) fn is_unread(&self, key: &LeaseKey) -> bool {
        let held = self.watched.get(key).and_then(|holder| self.holders.get(holder));
        held.and_then(|held| held.watched.get(key)).is_some_and(|lease| lease.inputs.is_none())
    }

    /// Notes the inputs of a lease, if it is still held.
    pub(super) fn set_inputs(&mut self, key: &LeaseKey, inputs: Arc<[Digest]>) {
        while self.input_digests + inputs.len() > MAX_INPUT_DIGESTS {
            let Some(oldest) = self.found.first_key_value().map(|(_, key)| *key) else { break };
            self.drop_inputs(&oldest);
        }
        let held = self.watched.get(key).and_then(|holder| self.holders.get_mut(holder));
        let Some(held) = held else { return };
        let Some(lease) = held.watched.get_mut(key).filter(|lease| lease.inputs.is_none()) else { return };
        for digest in inputs.iter() {
            *held.readable.entry(*digest).or_default() += 1;
        }
        self.input_digests += inputs.len();
        lease.inputs = Some(Inputs { digests: inputs, number: self.next_found });
        self.found.insert(self.next_found, *key);
        self.next_found += 1;
    }

    fn drop_inputs(&mut self, key: &LeaseKey) {
        let held = self.watched.get(key).and_then(|holder| self.holders.get_mut(holder));
        let Some(held) = held else { return };
        let inputs = held.watched.get_mut(key).and_then(|lease| lease.inputs.take());
        let Some(Inputs { digests, number }) = inputs else { return };
        self.found.remove(&number);
        self.input_digests -= digests.len();
        for digest in digests.iter() {
            if let Some(count) = held.readable.get_mut(digest) {
                *count -= 1;
                if *count == 0 {
                    held.readable.remove(digest);
                }
            }
        }
    }

    /// Counts an upload for the lease that has uploaded least. None if no lease has so many bytes left.
    pub(super) fn charge(&mut self, holder: &Holder, bytes: u64, max_bytes: u64) -> Option<LeaseKey> {
        let held = self.holders.get_mut(holder)?;
        let (key, lease) = held.watched.iter_mut().min_by_key(|(_, lease)| lease.uploaded_bytes)?;
        lease.uploaded_bytes = lease.uploaded_bytes.checked_add(bytes).filter(|sum| *sum <= max_bytes)?;
        Some(*key)
    }

    /// Takes back what an upload that came to nothing was counted for.
    pub(super) fn refund(&mut self, key: &LeaseKey, bytes: u64) {
        let held = self.watched.get(key).and_then(|holder| self.holders.get_mut(holder));
        if let Some(lease) = held.and_then(|held| held.watched.get_mut(key)) {
            lease.uploaded_bytes = lease.uploaded_bytes.saturating_sub(bytes);
        }
    }

    /// Notes a lease that was granted before this process started. False if its holder is known already.
    pub(super) fn add_unclaimed(&mut self, tenant: &Arc<str>, key: LeaseKey) -> bool {
        !self.watched.contains_key(&key) && self.unclaimed.entry(tenant.clone()).or_default().insert(key)
    }

    /// The holder of a lease is known, or the lease is over.
    pub(super) fn claim(&mut self, tenant: &Arc<str>, key: &LeaseKey) {
        if let Some(unclaimed) = self.unclaimed.get_mut(tenant) {
            unclaimed.remove(key);
            if unclaimed.is_empty() {
                self.unclaimed.remove(tenant);
            }
        }
    }

    /// Whether the holder of a lease of the tenant is not known yet.
    pub(super) fn has_unclaimed(&self, tenant: &Arc<str>) -> bool {
        self.unclaimed.contains_key(tenant)
    }
}
