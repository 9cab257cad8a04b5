//! The tasks of one queue that may be leased now, grouped by the properties they require. For each
//! worker profile (the properties a worker offers) an ordered set of the heads of the matching requirement sets gives the
//! next task in O(log n).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use super::slab::Slot;
use crate::limits::MAX_WORKER_PROFILES;
use crate::{Position, Properties};

/// The order in a queue: lower priority first, then who has waited longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueEntry {
    pub priority: i32,
    pub since: Position,
    pub slot: Slot,
}

type RequirementSetId = u32;

#[derive(Debug, Default)]
pub(crate) struct ReadyIndex {
    requirement_sets: BTreeMap<RequirementSetId, RequirementSet>,
    by_properties: BTreeMap<Arc<Properties>, RequirementSetId>,
    next_id: RequirementSetId,
    worker_profiles: BTreeMap<Arc<Properties>, BTreeSet<(QueueEntry, RequirementSetId)>>,
    len: usize,
}

#[derive(Debug)]
struct RequirementSet {
    properties: Arc<Properties>,
    entries: BTreeSet<QueueEntry>,
}

impl ReadyIndex {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn requirement_sets(&self) -> usize {
        self.requirement_sets.len()
    }

    pub(crate) fn has_requirement_set(&self, properties: &Arc<Properties>) -> bool {
        self.by_properties.contains_key(properties)
    }

    pub(crate) fn insert(&mut self, properties: &Arc<Properties>, entry: QueueEntry) {
        let id = match self.by_properties.get(properties) {
            Some(&id) => id,
            None => self.add_requirement_set(properties),
        };
        let Some(set) = self.requirement_sets.get_mut(&id) else { return };
        let old_head = set.entries.first().copied();
        set.entries.insert(entry);
        self.len += 1;
        self.update_head(id, old_head);
    }

    pub(crate) fn remove(&mut self, properties: &Arc<Properties>, entry: QueueEntry) {
        let Some(&id) = self.by_properties.get(properties) else { return };
        let Some(set) = self.requirement_sets.get_mut(&id) else { return };
        let old_head = set.entries.first().copied();
        if set.entries.remove(&entry) {
            self.len -= 1;
        }
        self.update_head(id, old_head);
        // The set without requirements stays: nearly every task belongs to it.
        if self.requirement_sets[&id].entries.is_empty() && !properties.is_empty() {
            self.requirement_sets.remove(&id);
            self.by_properties.remove(properties);
        }
    }

    /// Builds the index for a worker profile unless the profile has one. The index may be dropped at any time.
    pub(crate) fn index_worker_profile(&mut self, offered: &Arc<Properties>) {
        if self.worker_profiles.contains_key(offered) {
            return;
        }
        if self.worker_profiles.len() >= MAX_WORKER_PROFILES {
            self.worker_profiles.clear();
        }
        let heads = self.heads(offered).collect();
        self.worker_profiles.insert(offered.clone(), heads);
    }

    /// The tasks that a worker with these properties may lease, in their order.
    pub(crate) fn entries<'a>(&'a self, offered: &Properties) -> ReadyEntries<'a> {
        match self.worker_profiles.get(offered) {
            // One matching set is the usual case and needs no merge.
            Some(heads) if heads.len() <= 1 => {
                let set = heads.first().and_then(|(_, id)| self.requirement_sets.get(id));
                ReadyEntries::One(set.map(|set| set.entries.iter()))
            }
            Some(heads) => ReadyEntries::Merged(self.merge(heads.iter().copied())),
            None => ReadyEntries::Merged(self.merge(self.heads(offered))),
        }
    }

    /// The position since which the oldest ready task has waited.
    pub(crate) fn oldest(&self) -> Option<QueueEntry> {
        /// Distinct priorities examined in one set; with more of them the answer is an estimate.
        const MAX_PRIORITIES: usize = 64;
        let mut oldest: Option<QueueEntry> = None;
        for set in self.requirement_sets.values() {
            let mut head = set.entries.first().copied();
            for _ in 0..MAX_PRIORITIES {
                let Some(entry) = head else { break };
                oldest =
                    Some(oldest.map_or(entry, |best| if entry.since < best.since { entry } else { best }));
                let after =
                    QueueEntry { priority: entry.priority, since: Position(u64::MAX), slot: Slot(u32::MAX) };
                head = set.entries.range(after..).next().copied();
            }
        }
        oldest
    }

    /// Every ready task with the properties it is filed under.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<Properties>, &QueueEntry)> {
        self.requirement_sets
            .values()
            .flat_map(|set| set.entries.iter().map(|entry| (&set.properties, entry)))
    }

    /// Whether the heads of every worker profile equal a scan of the requirement sets. For tests.
    pub(crate) fn worker_profiles_match_scan(&self) -> bool {
        self.worker_profiles
            .iter()
            .all(|(offered, heads)| self.heads(offered).collect::<BTreeSet<_>>() == *heads)
    }

    fn heads<'a>(
        &'a self,
        offered: &'a Properties,
    ) -> impl Iterator<Item = (QueueEntry, RequirementSetId)> + 'a {
        self.requirement_sets
            .iter()
            .filter(|(_, set)| set.properties.satisfied_by(offered))
            .filter_map(|(id, set)| Some((*set.entries.first()?, *id)))
    }

    fn merge<'a>(&'a self, heads: impl Iterator<Item = (QueueEntry, RequirementSetId)>) -> Merge<'a> {
        Merge { ready: self, heap: heads.map(Reverse).collect() }
    }

    fn add_requirement_set(&mut self, properties: &Arc<Properties>) -> RequirementSetId {
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        self.by_properties.insert(properties.clone(), id);
        self.requirement_sets
            .insert(id, RequirementSet { properties: properties.clone(), entries: BTreeSet::new() });
        id
    }

    fn update_head(&mut self, id: RequirementSetId, old: Option<QueueEntry>) {
        let set = &self.requirement_sets[&id];
        let new = set.entries.first().copied();
        if old == new {
            return;
        }
        for (_, heads) in
            self.worker_profiles.iter_mut().filter(|(offered, _)| set.properties.satisfied_by(offered))
        {
            if let Some(old) = old {
                heads.remove(&(old, id));
            }
            if let Some(new) = new {
                heads.insert((new, id));
            }
        }
    }
}

/// Ready tasks in their order.
pub(crate) enum ReadyEntries<'a> {
    One(Option<std::collections::btree_set::Iter<'a, QueueEntry>>),
    Merged(Merge<'a>),
}

pub(crate) struct Merge<'a> {
    ready: &'a ReadyIndex,
    heap: BinaryHeap<Reverse<(QueueEntry, RequirementSetId)>>,
}

impl Iterator for ReadyEntries<'_> {
    type Item = QueueEntry;

    fn next(&mut self) -> Option<QueueEntry> {
        match self {
            ReadyEntries::One(entries) => entries.as_mut()?.next().copied(),
            ReadyEntries::Merged(merge) => merge.next(),
        }
    }
}

impl Iterator for Merge<'_> {
    type Item = QueueEntry;

    fn next(&mut self) -> Option<QueueEntry> {
        let Reverse((entry, id)) = self.heap.pop()?;
        let after = std::ops::Bound::Excluded(entry);
        let following =
            self.ready.requirement_sets[&id].entries.range((after, std::ops::Bound::Unbounded)).next();
        if let Some(next) = following {
            self.heap.push(Reverse((*next, id)));
        }
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Arc<Properties> {
        Arc::new(Properties::new(pairs.iter().map(|(n, v)| (Arc::from(*n), Arc::from(*v)))))
    }

    fn entry(priority: i32, since: u64) -> QueueEntry {
        QueueEntry { priority, since: Position(since), slot: Slot(since as u32) }
    }

    fn order(ready: &ReadyIndex, offered: &Properties) -> Vec<u64> {
        ready.entries(offered).map(|entry| entry.since.0).collect()
    }

    #[test]
    fn a_worker_sees_its_matching_requirement_sets_merged_in_order() {
        let (any, linux, mac) =
            (properties(&[]), properties(&[("os", "linux")]), properties(&[("os", "mac")]));
        let mut ready = ReadyIndex::default();
        ready.index_worker_profile(&linux);
        ready.insert(&any, entry(0, 1));
        ready.insert(&linux, entry(0, 2));
        ready.insert(&mac, entry(-9, 3));
        ready.insert(&any, entry(0, 4));
        ready.insert(&linux, entry(-1, 5));
        assert_eq!(order(&ready, &linux), [5, 1, 2, 4]);
        assert_eq!(order(&ready, &any), [1, 4], "a profile without an index is matched by a scan");
        ready.remove(&linux, entry(-1, 5));
        assert_eq!(order(&ready, &linux), [1, 2, 4]);
        assert!(ready.worker_profiles_match_scan());
    }

    #[test]
    fn an_empty_requirement_set_is_removed_with_its_heads() {
        let linux = properties(&[("os", "linux")]);
        let mut ready = ReadyIndex::default();
        ready.index_worker_profile(&linux);
        ready.insert(&linux, entry(0, 1));
        ready.remove(&linux, entry(0, 1));
        assert_eq!((ready.len(), ready.requirement_sets()), (0, 0));
        assert!(ready.worker_profiles_match_scan());
        assert_eq!(order(&ready, &linux), []);
    }

    #[test]
    fn too_many_worker_profiles_reset_the_index() {
        let mut ready = ReadyIndex::default();
        ready.insert(&properties(&[]), entry(0, 1));
        for n in 0..=MAX_WORKER_PROFILES {
            ready.index_worker_profile(&properties(&[("n", &n.to_string())]));
        }
        assert!(ready.worker_profiles.len() <= MAX_WORKER_PROFILES);
        assert_eq!(order(&ready, &properties(&[("n", "0")])), [1]);
    }

    #[test]
    fn the_oldest_task_is_found_behind_more_urgent_tasks() {
        let any = properties(&[]);
        let mut ready = ReadyIndex::default();
        for (priority, since) in [(5, 1), (0, 7), (-3, 9)] {
            ready.insert(&any, entry(priority, since));
        }
        assert_eq!(ready.oldest().map(|entry| entry.since), Some(Position(1)));
    }
}
