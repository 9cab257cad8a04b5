//! Holds: positions from which on records are protected from being trimmed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::{Error, Hold, Position};

/// The holds on one storage. A hold that was dropped protects nothing.
#[derive(Default)]
pub(crate) struct Holds(Mutex<Vec<Weak<AtomicU64>>>);

impl Holds {
    pub(crate) fn hold(&self, from: Position) -> Box<dyn Hold> {
        let hold = Arc::new(AtomicU64::new(from.0));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&hold));
        Box::new(hold)
    }

    /// The last record that may be trimmed when a snapshot stands for the records up to `floor`.
    pub(crate) fn trim_limit(&self, floor: Position) -> Position {
        let mut holds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        holds.retain(|hold| hold.strong_count() > 0);
        let held = holds.iter().filter_map(Weak::upgrade).map(|from| from.load(Ordering::Acquire));
        Position(held.map(|from| from.saturating_sub(1)).fold(floor.0, u64::min))
    }
}

impl Hold for Arc<AtomicU64> {
    fn advance(&self, from: Position) -> Result<(), Error> {
        self.fetch_max(from.0, Ordering::AcqRel);
        Ok(())
    }
}
