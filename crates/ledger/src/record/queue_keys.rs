//! The queues of recently decoded tasks, so that tasks of the same queue share one name in memory.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use authority::QueueKey;

use super::DecodeError;
use super::value::queue_key;

/// Queues that are remembered, a power of two. Each has one place, and the last one to use it stays.
const PLACES: usize = 64;

/// Decodes queue names, each only once while it is remembered.
#[derive(Debug, Default)]
pub(crate) struct QueueKeys {
    hasher: RandomState,
    places: Vec<Option<(Vec<u8>, Arc<QueueKey>)>>,
}

impl QueueKeys {
    pub(crate) fn decode(&mut self, stored: &[u8]) -> Result<Arc<QueueKey>, DecodeError> {
        if self.places.is_empty() {
            self.places.resize(PLACES, None);
        }
        let place = &mut self.places[self.hasher.hash_one(stored) as usize % PLACES];
        match place {
            Some((same, queue)) if same == stored => Ok(queue.clone()),
            _ => {
                let queue = Arc::new(queue_key(stored)?);
                *place = Some((stored.to_vec(), queue.clone()));
                Ok(queue)
            }
        }
    }
}
