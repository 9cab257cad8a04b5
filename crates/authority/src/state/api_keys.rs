//! The API keys that live, by id.

use std::sync::Arc;

use super::State;
use crate::{ApiKey, Position, Time};

/// A key, and the record that created it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredKey {
    pub key: Arc<ApiKey>,
    pub created_at: Time,
    pub since: Position,
}

impl State {
    pub fn key(&self, id: &str) -> Option<&StoredKey> {
        self.keys.get(id)
    }

    /// The keys that live, by id; also those that have expired.
    pub fn keys(&self) -> impl Iterator<Item = &StoredKey> {
        self.keys.values()
    }

    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn insert_key(&mut self, key: StoredKey) {
        self.keys.insert(key.key.id.clone(), key);
    }

    /// Whether there was such a key.
    pub(crate) fn remove_key(&mut self, id: &str) -> bool {
        self.keys.remove(id).is_some()
    }
}
