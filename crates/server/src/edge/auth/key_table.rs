//! The API keys that live, for the lookup of every request, kept in step with the durable state: a key works once its record
//! is durable, and is refused before its revocation is answered. In a cluster each node has a table; the last one stays good
//! while the owner cannot be asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use authority::command::{CreateKey, CreateKeyAnswer, RevokeKey, RevokeKeyAnswer};
use authority::{SecretHash, StoredKey, Time};
use coordinator::{Handle, Unavailable};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};

use super::identity::{Identity, KEY_IDENTITY};
use super::secret::is_same;

/// How long the table waits before it asks the coordinator again that did not answer, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// The time between two reads of the keys that begin because a key is unknown: whoever sends made-up keys causes no more.
const MISS_PAUSE: Duration = Duration::from_millis(250);
/// How long the answer to a change waits until this node can read the keys. It reads them later, too.
const MAX_FOLLOWING: Duration = Duration::from_secs(3);
/// Most requests with unknown keys that wait for such a read at one time.
const MAX_MISSES: usize = 1_000;

#[derive(Clone, Default)]
pub(crate) struct KeyTable(Arc<Inner>);

struct Inner {
    /// Replaced as a whole, so that a lookup holds the lock for a moment only.
    keys: RwLock<Arc<HashMap<Arc<str>, Entry>>>,
    /// How many reads have begun.
    begun: AtomicU64,
    /// Held by the read that runs, so that the last read is what the table shows.
    turn: Mutex<Turn>,
    misses: Semaphore,
    /// Of the table; a new one is there before its version is.
    version: AtomicU64,
    /// Notifies those who wait for the end of a key.
    changes: watch::Sender<()>,
}

/// The reads that are over.
#[derive(Default)]
struct Turn {
    /// The number and the result of the last one.
    last: Option<(u64, Result<(), Unavailable>)>,
    /// When one began because a key is unknown.
    missed_at: Option<Instant>,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner {
            keys: RwLock::default(),
            begun: AtomicU64::new(0),
            turn: Mutex::default(),
            misses: Semaphore::new(MAX_MISSES),
            version: AtomicU64::new(0),
            changes: watch::Sender::default(),
        }
    }
}

struct Entry {
    identity: Arc<Identity>,
    stored: StoredKey,
}

impl Entry {
    fn expires_at(&self) -> Option<Time> {
        self.stored.key.expires_at
    }
}

impl KeyTable {
    /// The holder of a key that lives and has not expired.
    pub(super) fn find(&self, id: &str, hash: &SecretHash, now: Time) -> Option<Arc<Identity>> {
        let keys = self.keys();
        let entry = keys.get(id)?;
        let is_live = entry.expires_at().is_none_or(|at| now < at);
        (is_same(&entry.stored.key.secret_hash, hash) && is_live).then(|| entry.identity.clone())
    }

    /// Changes with every change of a key.
    pub(super) fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// Whether an identity is that of a key that was revoked or has expired.
    pub(crate) fn is_ended_key(&self, identity: &str, now: Time) -> bool {
        let Some(id) = identity.strip_prefix(KEY_IDENTITY) else { return false };
        self.keys().get(id).is_none_or(|entry| entry.expires_at().is_some_and(|at| at <= now))
    }

    /// Resolves when the key of the holder is revoked, its certificate is trusted no more, or its credential expires.
    pub(super) fn ended(&self, identity: &Identity, now: Time) -> impl Future<Output = ()> + Send + use<> {
        let (table, id, chain) = (self.clone(), identity.key_id().cloned(), identity.chain().cloned());
        let left = identity.expires_at().map(|at| Duration::from_millis(at.since_ms(now)));
        let mut changes = self.0.changes.subscribe();
        let revoked = async move {
            match (id, chain) {
                (Some(id), _) => while table.keys().contains_key(&id) && changes.changed().await.is_ok() {},
                (None, Some(chain)) => chain.untrusted().await,
                (None, None) => std::future::pending().await,
            }
        };
        async move {
            match left {
                None => revoked.await,
                Some(left) => tokio::select! {
                    () = revoked => {}
                    () = sleep(left) => {}
                },
            }
        }
    }

    fn keys(&self) -> Arc<HashMap<Arc<str>, Entry>> {
        self.0.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The holder of a key that this node does not know: another node may have made it. The keys are read first, unless they
    /// were a moment ago.
    pub(super) async fn find_anew(
        &self,
        handle: &Handle,
        id: &str,
        hash: &SecretHash,
    ) -> Result<Option<Arc<Identity>>, Unavailable> {
        let is_due = |turn: &mut Turn| {
            let is_due = turn.missed_at.is_none_or(|at| at.elapsed() >= MISS_PAUSE);
            if is_due {
                turn.missed_at = Some(Instant::now());
            }
            is_due
        };
        // In a task of its own: others wait for the read, also when this caller goes away.
        let (table, reader) = (self.clone(), handle.clone());
        let read = tokio::spawn(async move {
            let _miss = table.0.misses.try_acquire().map_err(|_| Unavailable::Overloaded)?;
            table.read_if(&reader, is_due).await
        });
        read.await.unwrap_or(Err(Unavailable::OutcomeUnknown))?;
        Ok(self.find(id, hash, handle.now()))
    }

    /// Reads the keys from the coordinator.
    pub(crate) async fn load(&self, handle: &Handle) -> Result<(), Unavailable> {
        self.read_if(handle, |_| true).await
    }

    /// Reads the keys until that succeeds. Without a coordinator nothing is served, and no key is good.
    pub(crate) async fn follow(&self, handle: &Handle) {
        let mut pause = FIRST_PAUSE;
        while let Err(why) = self.load(handle).await {
            let is_alone = !handle.has_other_nodes();
            if why == Unavailable::Stopped || (is_alone && why != Unavailable::Overloaded) {
                return self.replace(Vec::new());
            }
            if pause == FIRST_PAUSE {
                tracing::warn!(%why, "the API keys cannot be read; the last ones stay good until they can");
            }
            sleep(pause).await;
            pause = MAX_PAUSE.min(pause * 2);
        }
    }

    /// Reads the keys, or joins a read that begins after this call. Not at all, unless it may begin when it is its turn.
    async fn read_if(
        &self,
        handle: &Handle,
        may_begin: impl FnOnce(&mut Turn) -> bool,
    ) -> Result<(), Unavailable> {
        let next = self.0.begun.load(Ordering::Acquire) + 1;
        let mut turn = self.0.turn.lock().await;
        if let Some((number, result)) = turn.last
            && number >= next
        {
            return result;
        }
        if !may_begin(&mut turn) {
            return turn.last.map_or(Ok(()), |(_, result)| result);
        }
        let number = self.0.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let result = handle.keys().await.map(|keys| self.replace(keys));
        turn.last = Some((number, result));
        result
    }

    pub(crate) async fn create(
        &self,
        handle: &Handle,
        command: CreateKey,
    ) -> Result<CreateKeyAnswer, Unavailable> {
        self.change(handle, move |handle| async move { handle.create_key(command).await }).await
    }

    pub(crate) async fn revoke(
        &self,
        handle: &Handle,
        command: RevokeKey,
    ) -> Result<RevokeKeyAnswer, Unavailable> {
        self.change(handle, move |handle| async move { handle.revoke_key(command).await }).await
    }

    /// Decides a change and follows it, in a task of its own: a caller that goes away must not leave the table behind.
    async fn change<A, F>(
        &self,
        handle: &Handle,
        decide: impl FnOnce(Handle) -> F + Send + 'static,
    ) -> Result<A, Unavailable>
    where
        A: Send + 'static,
        F: Future<Output = Result<A, Unavailable>> + Send,
    {
        let (table, handle) = (self.clone(), handle.clone());
        let changed = tokio::spawn(async move {
            let answer = decide(handle.clone()).await;
            // Also after an error: the outcome may be unknown, and the keys are what the coordinator says. In a cluster its
            // owner tells of what it has decided after all.
            if answer.is_ok() || !handle.has_other_nodes() {
                let following = tokio::spawn(async move { table.follow(&handle).await });
                timeout(MAX_FOLLOWING, following).await.map_err(|_| Unavailable::OutcomeUnknown)?.ok();
            }
            answer
        });
        changed.await.unwrap_or(Err(Unavailable::OutcomeUnknown))
    }

    fn replace(&self, keys: Vec<StoredKey>) {
        // Everybody who waits for the end of a key looks at each change.
        let known = self.keys();
        let is_known =
            |stored: &StoredKey| known.get(&stored.key.id).is_some_and(|entry| entry.stored == *stored);
        if keys.len() == known.len() && keys.iter().all(is_known) {
            return;
        }
        let entry = |stored: StoredKey| {
            (stored.key.id.clone(), Entry { identity: Arc::new(Identity::of_key(&stored.key)), stored })
        };
        let keys = Arc::new(keys.into_iter().map(entry).collect());
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        self.0.version.fetch_add(1, Ordering::AcqRel);
        self.0.changes.send_replace(());
    }
}

#[cfg(test)]
mod tests;
