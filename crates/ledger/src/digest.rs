//! One hash of everything that is true: two states with the same facts have the same digest, however their
//! tasks came to lie in memory.
//!
//! For offline checks, the simulator and tests. It walks over all tasks and is never part of serving.

use authority::{State, TaskId};

use crate::record::snapshot::{
    encode_header, encode_key, encode_owner, encode_queue, encode_task, encode_token_key,
};

/// Keeps the digest apart from every other use of the hash; a new meaning gets a new number.
const CONTEXT: &str = "lessor 2026 state digest v1";

/// Hashes position, time, the tasks by id with their queues, the configured queues by name, owner, token key and API keys.
pub fn state_digest(state: &State) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
    let mut entry = Vec::new();
    encode_header(state.position(), state.time(), &mut entry);
    for (key, config, configured) in state.configured_queues() {
        encode_queue(key, config, configured, &mut entry);
    }
    if let Some(owner) = state.owner() {
        encode_owner(owner, &mut entry);
    }
    if let Some(key) = state.token_key() {
        encode_token_key(key, &mut entry);
    }
    state.keys().for_each(|key| encode_key(key, &mut entry));
    hasher.update(&entry);
    for (_, slot) in slots_by_id(state) {
        if let Some((queue, task)) = state.in_slot(slot) {
            entry.clear();
            encode_task(queue, task, &mut entry);
            hasher.update(&entry);
        }
    }
    hasher.finalize()
}

fn slots_by_id(state: &State) -> Vec<(TaskId, u32)> {
    let in_slot = |slot| state.in_slot(slot).map(|(_, task)| (task.id, slot));
    let mut ids: Vec<(TaskId, u32)> = (0..state.slots()).filter_map(in_slot).collect();
    ids.sort_unstable();
    ids
}
