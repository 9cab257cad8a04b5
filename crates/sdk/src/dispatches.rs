//! Tracks running and recent dispatches, so that a repeated dispatch is accepted and not run again.

use std::collections::{HashMap, HashSet, VecDeque};

/// Most ended dispatches that are remembered; the oldest are dropped first.
const MAX_REMEMBERED: usize = 10_000;

/// What to do with a dispatch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    New,
    Repeat,
    Full,
}

#[derive(Debug)]
pub(crate) struct Dispatches<T> {
    running: HashMap<String, T>,
    remembered: HashSet<String>,
    by_age: VecDeque<String>,
}

impl<T> Dispatches<T> {
    pub(crate) fn new() -> Dispatches<T> {
        Dispatches { running: HashMap::new(), remembered: HashSet::new(), by_age: VecDeque::new() }
    }

    pub(crate) fn arrival(&self, id: &str, concurrency: usize) -> Arrival {
        if self.running.contains_key(id) || self.remembered.contains(id) {
            Arrival::Repeat
        } else if self.running.len() >= concurrency {
            Arrival::Full
        } else {
            Arrival::New
        }
    }

    pub(crate) fn begin(&mut self, id: String, running: T) {
        self.running.insert(id, running);
    }

    /// Ends a dispatch. It is remembered unless its work never began: then a repeat may run.
    pub(crate) fn end(&mut self, id: &str, began: bool) {
        if self.running.remove(id).is_none() || !began || !self.remembered.insert(id.to_owned()) {
            return;
        }
        self.by_age.push_back(id.to_owned());
        if self.by_age.len() > MAX_REMEMBERED
            && let Some(oldest) = self.by_age.pop_front()
        {
            self.remembered.remove(&oldest);
        }
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &T> {
        self.running.values()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeat_is_known_while_it_runs_and_afterwards() {
        let mut dispatches = Dispatches::new();
        assert_eq!(dispatches.arrival("a", 1), Arrival::New);
        dispatches.begin("a".into(), ());
        assert_eq!(dispatches.arrival("a", 1), Arrival::Repeat, "also when it is full");
        assert_eq!(dispatches.arrival("b", 1), Arrival::Full);
        dispatches.end("a", true);
        assert_eq!(dispatches.arrival("a", 1), Arrival::Repeat);
        dispatches.begin("b".into(), ());
        dispatches.end("b", false);
        assert_eq!(dispatches.arrival("b", 1), Arrival::New, "it never began");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut dispatches = Dispatches::new();
        for n in 0..=MAX_REMEMBERED {
            dispatches.begin(n.to_string(), ());
            dispatches.end(&n.to_string(), true);
        }
        assert_eq!((dispatches.remembered.len(), dispatches.by_age.len()), (MAX_REMEMBERED, MAX_REMEMBERED));
        assert_eq!(dispatches.arrival("0", 1), Arrival::New);
        assert_eq!(dispatches.arrival("1", 1), Arrival::Repeat);
    }
}
