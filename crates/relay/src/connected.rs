//! The nodes that are connected to this one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::connection::{BEAT, Ear};

/// A node that was silent for longer may be cut off. Its connection lasts longer.
const MAX_UNHEARD: Duration = BEAT.saturating_mul(2);

/// The nodes that are connected to this one. Cheap to clone: clones share their content.
#[derive(Clone, Default)]
pub struct ConnectedNodes(Arc<Mutex<HashMap<u64, Newest>>>);

/// The newest connection of an instance of a node.
pub(crate) struct Newest {
    pub node: String,
    pub number: u64,
    pub ear: Ear,
    /// Ends the connection.
    pub replaced: CancellationToken,
    /// Closed once no call of the connection is in work.
    pub ended: watch::Receiver<()>,
}

impl ConnectedNodes {
    /// Whether a node was heard a moment ago.
    pub fn hears(&self, node: &str) -> bool {
        self.by_instance()
            .values()
            .any(|newest| newest.node == node && newest.ear.has_heard_within(MAX_UNHEARD))
    }

    pub(crate) fn by_instance(&self) -> MutexGuard<'_, HashMap<u64, Newest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
