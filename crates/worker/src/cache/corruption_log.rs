//! The log of contents that were found to be damaged, for all attempts that use them: a command that writes through the
//! link to an input changes the input of all others, and only the first check finds it.

use std::collections::HashMap;

use super::Key;

/// Most contents that are logged individually.
const MAX_FOUND: usize = 10_000;

/// A point in the order in which damage was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Generation(u64);

#[derive(Debug, Default)]
pub(super) struct CorruptionLog {
    last: Generation,
    found: HashMap<Key, Generation>,
    /// Until then, every content counts as damaged.
    all_until: Generation,
}

impl CorruptionLog {
    pub(super) fn now(&self) -> Generation {
        self.last
    }

    pub(super) fn found(&mut self, key: Key) {
        self.last.0 += 1;
        if self.found.len() >= MAX_FOUND {
            self.found.clear();
            self.all_until = self.last;
        }
        self.found.insert(key, self.last);
    }

    /// Whether a content was found to be damaged after this generation, or may have been.
    pub(super) fn is_found(&self, key: &Key, since: Generation) -> bool {
        self.all_until > since || self.found.get(key).is_some_and(|found| *found > since)
    }
}

#[cfg(test)]
mod tests {
    use blobs::{Digest, DigestFunction};

    use super::*;

    fn key(n: usize) -> Key {
        Key { digest: Digest::of(DigestFunction::Sha256, &n.to_le_bytes()), is_executable: false }
    }

    #[test]
    fn damage_is_told_to_those_who_began_before_it_was_found() {
        let mut damage = CorruptionLog::default();
        let before = damage.now();
        damage.found(key(1));
        let after = damage.now();
        assert!(damage.is_found(&key(1), before) && !damage.is_found(&key(1), after));
        assert!(!damage.is_found(&key(2), before));
    }

    #[test]
    fn what_cannot_be_remembered_counts_as_damaged() {
        let mut damage = CorruptionLog::default();
        let before = damage.now();
        (0..=MAX_FOUND).for_each(|n| damage.found(key(n)));
        assert_eq!(damage.found.len(), 1);
        assert!(damage.is_found(&key(MAX_FOUND + 1), before));
        assert!(!damage.is_found(&key(MAX_FOUND + 1), damage.now()));
    }
}
