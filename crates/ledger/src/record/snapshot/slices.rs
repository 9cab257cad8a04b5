//! Takes a snapshot a slice at a time, so that the writer never stalls and memory never doubles.
//!
//! Between two slices further records may be applied to the state. A task that exists at the begin keeps its
//! slot until it is purged, so the slots of the begin are all there is to visit: what is created later is in the
//! records after the begin. The same goes for a queue that is configured behind the slice.

use std::sync::Arc;

use authority::{Position, QueueKey, State};

use super::{encode_header, encode_key, encode_owner, encode_queue, encode_task, encode_token_key};

pub struct Slices {
    begin: Position,
    /// The last queue that was stored.
    queue: Option<Arc<QueueKey>>,
    queues_done: bool,
    /// The id of the last API key that was stored.
    key: Option<Arc<str>>,
    keys_done: bool,
    next_slot: u32,
    end_slot: u32,
}

impl Slices {
    /// Begins a snapshot: appends the header, the owner and the token key to `block`.
    pub fn begin(state: &State, block: &mut Vec<u8>) -> Slices {
        encode_header(state.position(), state.time(), block);
        if let Some(owner) = state.owner() {
            encode_owner(owner, block);
        }
        if let Some(key) = state.token_key() {
            encode_token_key(key, block);
        }
        Slices {
            begin: state.position(),
            queue: None,
            queues_done: state.configured_queues().next().is_none(),
            key: None,
            keys_done: state.key_count() == 0,
            next_slot: 0,
            end_slot: state.slots(),
        }
    }

    pub fn is_done(&self) -> bool {
        self.queues_done && self.keys_done && self.next_slot >= self.end_slot
    }

    /// Appends further queues, then API keys, then the tasks of further slots, at most `max_visits` of all, and stops early
    /// once `block` holds `max_bytes`. The snapshot ends at the state's position at its last slice.
    pub fn next(&mut self, state: &State, max_visits: u32, max_bytes: usize, block: &mut Vec<u8>) {
        let mut left = max_visits;
        if !self.queues_done {
            self.queues_done = self.next_queues(state, &mut left, max_bytes, block);
        }
        if self.queues_done && !self.keys_done {
            self.keys_done = self.next_keys(state, &mut left, max_bytes, block);
        }
        while self.queues_done
            && self.keys_done
            && self.next_slot < self.end_slot
            && left > 0
            && block.len() < max_bytes
        {
            // What was created since the begin comes with its records. It may also be a task that was stored before,
            // purged, and created again in a slot further on.
            let stored = state.in_slot(self.next_slot).filter(|(_, task)| task.created <= self.begin);
            if let Some((queue, task)) = stored {
                encode_task(queue, task, block);
            }
            self.next_slot += 1;
            left -= 1;
        }
    }

    /// Whether all queues are stored.
    fn next_queues(&mut self, state: &State, left: &mut u32, max_bytes: usize, block: &mut Vec<u8>) -> bool {
        let stored = self.queue.clone();
        let is_stored = |key: &Arc<QueueKey>| stored.as_ref().is_some_and(|stored| key <= stored);
        for (key, config, configured) in state.configured_queues().skip_while(|(key, ..)| is_stored(key)) {
            if *left == 0 || block.len() >= max_bytes {
                return false;
            }
            encode_queue(key, config, configured, block);
            self.queue = Some(key.clone());
            *left -= 1;
        }
        true
    }

    /// Whether all keys are stored.
    fn next_keys(&mut self, state: &State, left: &mut u32, max_bytes: usize, block: &mut Vec<u8>) -> bool {
        let stored = self.key.clone();
        let is_stored = |id: &Arc<str>| stored.as_ref().is_some_and(|stored| id <= stored);
        for key in state.keys().skip_while(|key| is_stored(&key.key.id)) {
            if *left == 0 || block.len() >= max_bytes {
                return false;
            }
            encode_key(key, block);
            self.key = Some(key.key.id.clone());
            *left -= 1;
        }
        true
    }
}
