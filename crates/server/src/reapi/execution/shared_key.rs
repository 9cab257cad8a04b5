//! Names the execution of an action by a dedup key, so that the ledger merges equal executions that were submitted through
//! different nodes (R44). Within a node the table of executions in flight does it.
//!
//! A dedup key belongs to its task until the task is purged, but an action whose result is not cached may be executed again
//! before that. The key of an execution therefore names the execution before it. All nodes find the same sequence in
//! the ledger, and its last member is the execution to join.

use std::sync::Arc;

use authority::{Dedup, TaskId, TaskOptions};
use blobs::Digest;

/// How many executions of one action are followed. An action that fails again and again, or whose result is lost each
/// time, is then executed without a key, and merged within each node only.
pub(super) const MAX_EARLIER_EXECUTIONS: usize = 16;

/// Dedup keys of clients have the digest of a payload here, so none of their tasks is mistaken for an execution.
const CONTENT: authority::Digest = authority::Digest(*b"remote execution");

/// The options of a task that executes the action after `previous`.
pub(super) fn options(action: &Digest, previous: Option<TaskId>) -> Arc<TaskOptions> {
    let function = action.function.name();
    let key = match previous {
        None => format!("{function}:{action}"),
        Some(previous) => format!("{function}:{action}:{previous}"),
    };
    Arc::new(TaskOptions {
        dedup: Some(Dedup { key: key.into(), content: CONTENT }),
        ..TaskOptions::default()
    })
}
