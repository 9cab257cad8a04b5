//! Protects history from being trimmed before it is read.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::Position;

/// While it lives, no record at or after its position is trimmed, however old or large the history grows.
pub struct FileHold(Arc<AtomicU64>);

impl FileHold {
    pub(super) fn new(from: Position) -> FileHold {
        FileHold(Arc::new(AtomicU64::new(from.0)))
    }

    /// Lets go of everything before `from`.
    pub fn advance(&self, from: Position) {
        self.0.fetch_max(from.0, Ordering::AcqRel);
    }

    pub(super) fn shared(&self) -> std::sync::Weak<AtomicU64> {
        Arc::downgrade(&self.0)
    }
}
