//! The configuration that nodes keep copies of: keys, token keys and queues. Its changes are counted, so that an answer can wait
//! until every copy follows.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::peer::NoticeBoard;

/// How long an answer waits for the copies: longer than a connection between nodes that is silent, so that it waits for each
/// node that is connected.
pub(super) const DEFAULT_FOLLOW_WAIT: Duration = Duration::from_secs(3);

/// The changes that a node knows of, and how far they are followed.
pub(super) struct Configuration {
    changes: watch::Sender<u64>,
    /// As many changes as every follower has followed; the highest number without any follower.
    followed: watch::Sender<u64>,
    /// How many changes each follower has followed.
    followers: Mutex<HashMap<u64, u64>>,
    next_id: AtomicU64,
}

impl Default for Configuration {
    fn default() -> Configuration {
        Configuration {
            changes: watch::Sender::new(0),
            followed: watch::Sender::new(u64::MAX),
            followers: Mutex::default(),
            next_id: AtomicU64::new(0),
        }
    }
}

impl Configuration {
    /// Something has changed, or may have. Returns the number of the change.
    pub(super) fn changed(&self) -> u64 {
        let mut number = 0;
        self.changes.send_modify(|changes| {
            *changes += 1;
            number = *changes;
        });
        number
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Resolves once all changes so far are followed.
    pub(super) async fn followed_all(&self) {
        let changes = *self.changes.borrow();
        self.followed(changes).await;
    }

    /// Waits until a change is followed, but not for longer than `wait`.
    pub(super) async fn followed_in_time(&self, change: u64, wait: Duration) {
        if timeout(wait, self.followed(change)).await.is_err() {
            tracing::warn!("a node that is connected has not followed a change of the API keys in time");
        }
    }

    async fn followed(&self, change: u64) {
        // Fails only without a sender, which is here.
        let _ = self.followed.subscribe().wait_for(|followed| *followed >= change).await;
    }

    fn set(&self, id: u64, followed: Option<u64>) {
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        match followed {
            Some(followed) => followers.insert(id, followed),
            None => followers.remove(&id),
        };
        self.followed.send_replace(followers.values().copied().min().unwrap_or(u64::MAX));
    }
}

/// Notes a change when it is dropped, also if its request is given up: what was sent to the coordinator may be decided.
pub(super) struct Changing<'a>(Option<&'a Configuration>);

impl Changing<'_> {
    pub(super) fn begin(configuration: &Configuration) -> Changing<'_> {
        Changing(Some(configuration))
    }

    /// Notes it now. Returns the number of the change.
    pub(super) fn done(mut self) -> u64 {
        self.0.take().map_or(0, Configuration::changed)
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.take().map(Configuration::changed);
    }
}

/// Somebody who keeps a copy of the configuration: a server, or another node. Nobody waits for it once it is dropped.
pub struct ConfigurationFollower {
    board: Arc<NoticeBoard>,
    changes: watch::Receiver<u64>,
    /// None until it has followed something: until then nobody waits for it.
    id: Option<u64>,
}

impl ConfigurationFollower {
    pub(super) fn new(board: Arc<NoticeBoard>) -> ConfigurationFollower {
        let changes = board.configuration.changes();
        ConfigurationFollower { board, changes, id: None }
    }

    /// A follower that has followed all so far.
    pub(super) fn up_to_date(board: Arc<NoticeBoard>) -> ConfigurationFollower {
        let mut follower = ConfigurationFollower::new(board);
        let change = *follower.changes.borrow_and_update();
        follower.followed(change);
        follower
    }

    /// Waits for a change, also of another node. Returns its number.
    pub async fn next(&mut self) -> u64 {
        // Fails only without the sender, which the board has.
        let _ = self.changes.changed().await;
        *self.changes.borrow_and_update()
    }

    /// The copy has everything up to this change.
    pub fn followed(&mut self, change: u64) {
        let configuration = &self.board.configuration;
        let id = *self.id.get_or_insert_with(|| configuration.next_id.fetch_add(1, Ordering::Relaxed));
        configuration.set(id, Some(change));
    }
}

impl Drop for ConfigurationFollower {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.board.configuration.set(id, None);
        }
    }
}
