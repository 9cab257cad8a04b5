//! What is being cleared, for those who need the room that it takes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest wait for the room. What takes longer to clear is no reason to hold up a task that may find room elsewhere.
const MAX_WAIT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Clearing {
    count: Mutex<usize>,
    changed: Condvar,
}

/// Something that is being cleared until this is dropped.
pub(super) struct Begun(Arc<Clearing>);

impl Clearing {
    pub(super) fn begin(self: &Arc<Clearing>) -> Begun {
        *self.count() += 1;
        Begun(self.clone())
    }

    /// Waits until nothing is being cleared. Blocking.
    pub(super) fn wait(&self) {
        let waited = self.changed.wait_timeout_while(self.count(), MAX_WAIT, |count| *count > 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn count(&self) -> MutexGuard<'_, usize> {
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        *self.0.count() -= 1;
        self.0.changed.notify_all();
    }
}
