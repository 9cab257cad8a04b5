//! Properties: the requirements of a task and the offer of a worker.

use std::sync::Arc;

/// Names and values, sorted by name, each name once.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Properties(Box<[(Arc<str>, Arc<str>)]>);

impl Properties {
    /// Sorts the pairs; of a repeated name the last value stays.
    pub fn new(pairs: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Properties {
        let sorted: std::collections::BTreeMap<_, _> = pairs.into_iter().collect();
        Properties(sorted.into_iter().collect())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// Whether a worker that offers `offered` may run a task that requires `self`.
    pub fn satisfied_by(&self, offered: &Properties) -> bool {
        self.0.iter().all(|(name, value)| {
            offered.0.binary_search_by(|(n, _)| n.cmp(name)).is_ok_and(|at| offered.0[at].1 == *value)
        })
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len() + 64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Properties {
        Properties::new(pairs.iter().map(|(n, v)| (Arc::from(*n), Arc::from(*v))))
    }

    #[test]
    fn every_required_property_must_be_offered_with_the_same_value() {
        let worker = properties(&[("os", "linux"), ("arch", "x86_64")]);
        assert!(properties(&[]).satisfied_by(&worker));
        assert!(properties(&[("arch", "x86_64")]).satisfied_by(&worker));
        assert!(!properties(&[("arch", "arm64")]).satisfied_by(&worker));
        assert!(!properties(&[("os", "linux"), ("gpu", "1")]).satisfied_by(&worker));
    }
}
