//! Tracks requests that got their time of receipt but could not be sent at once. They may be decided after requests
//! that came later, so the time of ticks must not pass the earliest of them until they are decided.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::Time;

/// Cheap to clone: clones share their content.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<BTreeMap<Time, usize>>>);

/// Marks a request as waiting until it is dropped: decided, or abandoned by its caller.
pub(crate) struct WaitingGuard {
    waiting: Waiting,
    received_at: Time,
}

impl Waiting {
    pub(crate) fn enter(&self, received_at: Time) -> WaitingGuard {
        *self.lock().entry(received_at).or_default() += 1;
        WaitingGuard { waiting: self.clone(), received_at }
    }

    /// When the earliest request came that is yet to be decided.
    pub(crate) fn earliest(&self) -> Option<Time> {
        self.lock().first_key_value().map(|(received_at, _)| *received_at)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Time, usize>> {
        // Every change is one step, so the map is whole also after a panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        if let Entry::Occupied(mut count) = self.waiting.lock().entry(self.received_at) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_known_until_the_last_of_its_time_is_gone() {
        let waiting = Waiting::default();
        assert_eq!(waiting.earliest(), None);
        let (late, one, two) = (waiting.enter(Time(2)), waiting.enter(Time(1)), waiting.enter(Time(1)));
        drop(one);
        assert_eq!(waiting.earliest(), Some(Time(1)));
        drop(two);
        assert_eq!(waiting.earliest(), Some(Time(2)));
        drop(late);
        assert_eq!(waiting.earliest(), None);
    }
}
