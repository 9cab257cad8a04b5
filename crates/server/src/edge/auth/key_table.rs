//! The API keys that live, for the lookup of every request, kept in step with the durable state: a key works once its record
//! is durable, and is refused before its revocation is answered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use authority::command::{CreateKey, CreateKeyAnswer, RevokeKey, RevokeKeyAnswer};
use authority::{SecretHash, StoredKey, Time};
use coordinator::{Handle, Unavailable};
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;

use super::identity::{Identity, KEY_IDENTITY};
use super::secret::is_same;

/// How long the table waits before it asks an overloaded coordinator again, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Default)]
pub(crate) struct KeyTable(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Replaced as a whole, so that a lookup holds the lock for a moment only.
    keys: RwLock<Arc<HashMap<Arc<str>, Entry>>>,
    /// Held while a change is decided and the table follows it, so that the last change is what the table shows.
    changing: Mutex<()>,
    /// Of the table; a new one is there before its version is.
    version: AtomicU64,
    /// Notifies those who wait for the end of a key.
    changes: watch::Sender<()>,
}

struct Entry {
    identity: Arc<Identity>,
    hash: SecretHash,
    expires_at: Option<Time>,
}

impl KeyTable {
    /// The holder of a key that lives and has not expired.
    pub(super) fn find(&self, id: &str, hash: &SecretHash, now: Time) -> Option<Arc<Identity>> {
        let keys = self.keys();
        let entry = keys.get(id)?;
        let is_live = entry.expires_at.is_none_or(|at| now < at);
        (is_same(&entry.hash, hash) && is_live).then(|| entry.identity.clone())
    }

    /// Changes with every change of a key.
    pub(super) fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// Whether an identity is that of a key that was revoked or has expired.
    pub(crate) fn is_ended_key(&self, identity: &str, now: Time) -> bool {
        let Some(id) = identity.strip_prefix(KEY_IDENTITY) else { return false };
        self.keys().get(id).is_none_or(|entry| entry.expires_at.is_some_and(|at| at <= now))
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

    /// Reads the keys from the coordinator.
    pub(crate) async fn load(&self, handle: &Handle) -> Result<(), Unavailable> {
        let _changing = self.0.changing.lock().await;
        self.replace(handle.keys().await?);
        Ok(())
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
            let _changing = table.0.changing.lock().await;
            let answer = decide(handle.clone()).await;
            // Also after an error: the outcome may be unknown, and the keys are what the coordinator says. A coordinator that
            // is overloaded answers later; without one nothing is served, and no key is good.
            let mut pause = FIRST_PAUSE;
            let keys = loop {
                match handle.keys().await {
                    Ok(keys) => break keys,
                    Err(Unavailable::Overloaded) => sleep(pause).await,
                    Err(_) => break Vec::new(),
                }
                pause = MAX_PAUSE.min(pause * 2);
            };
            table.replace(keys);
            answer
        });
        changed.await.unwrap_or(Err(Unavailable::OutcomeUnknown))
    }

    fn replace(&self, keys: Vec<StoredKey>) {
        let entry = |stored: StoredKey| {
            let (hash, expires_at) = (stored.key.secret_hash, stored.key.expires_at);
            let id = stored.key.id.clone();
            (id, Entry { identity: Arc::new(Identity::of_key(&stored.key)), hash, expires_at })
        };
        let keys = Arc::new(keys.into_iter().map(entry).collect());
        *self.0.keys.write().unwrap_or_else(PoisonError::into_inner) = keys;
        self.0.version.fetch_add(1, Ordering::AcqRel);
        self.0.changes.send_replace(());
    }
}
