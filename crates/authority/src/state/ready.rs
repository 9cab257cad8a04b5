//! The tasks of one queue that may be leased now, grouped by what they require. For each kind of worker an
//! ordered set of the heads of the classes that fit it gives the next task in O(log n).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use super::slab::Slot;
use crate::limits::MAX_KINDS;
use crate::{Position, Properties};

/// The order in a queue: lower priority first, then who has waited longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Turn {
    pub priority: i32,
    pub since: Position,
    pub slot: Slot,
}

type ClassId = u32;

#[derive(Debug, Default)]
pub struct Ready {
    classes: BTreeMap<ClassId, Class>,
    by_properties: BTreeMap<Arc<Properties>, ClassId>,
    next_class: ClassId,
    kinds: BTreeMap<Arc<Properties>, BTreeSet<(Turn, ClassId)>>,
    len: usize,
}

#[derive(Debug)]
struct Class {
    properties: Arc<Properties>,
    turns: BTreeSet<Turn>,
}

impl Ready {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn classes(&self) -> usize {
        self.classes.len()
    }

    pub fn has_class(&self, properties: &Arc<Properties>) -> bool {
        self.by_properties.contains_key(properties)
    }

    pub fn insert(&mut self, properties: &Arc<Properties>, turn: Turn) {
        let id = match self.by_properties.get(properties) {
            Some(&id) => id,
            None => self.add_class(properties),
        };
        let Some(class) = self.classes.get_mut(&id) else { return };
        let old_head = class.turns.first().copied();
        class.turns.insert(turn);
        self.len += 1;
        self.move_head(id, old_head);
    }

    pub fn remove(&mut self, properties: &Arc<Properties>, turn: Turn) {
        let Some(&id) = self.by_properties.get(properties) else { return };
        let Some(class) = self.classes.get_mut(&id) else { return };
        let old_head = class.turns.first().copied();
        if class.turns.remove(&turn) {
            self.len -= 1;
        }
        self.move_head(id, old_head);
        // The class without requirements stays, because nearly every task is in it and comes and goes.
        if self.classes[&id].turns.is_empty() && !properties.is_empty() {
            self.classes.remove(&id);
            self.by_properties.remove(properties);
        }
    }

    /// Builds the index for a kind of worker, if it has none yet. It may be lost at any time.
    pub fn know_kind(&mut self, offered: &Arc<Properties>) {
        if self.kinds.contains_key(offered) {
            return;
        }
        if self.kinds.len() >= MAX_KINDS {
            self.kinds.clear();
        }
        let heads = self.heads(offered).collect();
        self.kinds.insert(offered.clone(), heads);
    }

    /// The tasks that a worker with these properties may lease, in their order.
    pub fn turns<'a>(&'a self, offered: &Properties) -> Turns<'a> {
        match self.kinds.get(offered) {
            // One class is the usual case, and needs no merge.
            Some(heads) if heads.len() <= 1 => {
                let class = heads.first().and_then(|(_, id)| self.classes.get(id));
                Turns::One(class.map(|class| class.turns.iter()))
            }
            Some(heads) => Turns::Merged(self.merge(heads.iter().copied())),
            None => Turns::Merged(self.merge(self.heads(offered))),
        }
    }

    /// The position since which the oldest ready task has waited.
    pub fn oldest(&self) -> Option<Turn> {
        /// Distinct priorities looked at in one class; beyond it the answer is a good guess.
        const MAX_PRIORITIES: usize = 64;
        let mut oldest: Option<Turn> = None;
        for class in self.classes.values() {
            let mut head = class.turns.first().copied();
            for _ in 0..MAX_PRIORITIES {
                let Some(turn) = head else { break };
                oldest = Some(oldest.map_or(turn, |best| if turn.since < best.since { turn } else { best }));
                let after = Turn { priority: turn.priority, since: Position(u64::MAX), slot: Slot(u32::MAX) };
                head = class.turns.range(after..).next().copied();
            }
        }
        oldest
    }

    /// Every ready task with the properties it is filed under.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<Properties>, &Turn)> {
        self.classes.values().flat_map(|class| class.turns.iter().map(|turn| (&class.properties, turn)))
    }

    /// Whether the kinds' heads are what the classes say. For tests.
    pub fn kinds_are_right(&self) -> bool {
        self.kinds.iter().all(|(offered, heads)| self.heads(offered).collect::<BTreeSet<_>>() == *heads)
    }

    fn heads<'a>(&'a self, offered: &'a Properties) -> impl Iterator<Item = (Turn, ClassId)> + 'a {
        self.classes
            .iter()
            .filter(|(_, class)| class.properties.fit(offered))
            .filter_map(|(id, class)| Some((*class.turns.first()?, *id)))
    }

    fn merge<'a>(&'a self, heads: impl Iterator<Item = (Turn, ClassId)>) -> Merge<'a> {
        Merge { ready: self, heap: heads.map(Reverse).collect() }
    }

    fn add_class(&mut self, properties: &Arc<Properties>) -> ClassId {
        let id = self.next_class;
        self.next_class = self.next_class.wrapping_add(1);
        self.by_properties.insert(properties.clone(), id);
        self.classes.insert(id, Class { properties: properties.clone(), turns: BTreeSet::new() });
        id
    }

    fn move_head(&mut self, id: ClassId, old: Option<Turn>) {
        let class = &self.classes[&id];
        let new = class.turns.first().copied();
        if old == new {
            return;
        }
        for (_, heads) in self.kinds.iter_mut().filter(|(offered, _)| class.properties.fit(offered)) {
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
pub enum Turns<'a> {
    One(Option<std::collections::btree_set::Iter<'a, Turn>>),
    Merged(Merge<'a>),
}

pub struct Merge<'a> {
    ready: &'a Ready,
    heap: BinaryHeap<Reverse<(Turn, ClassId)>>,
}

impl Iterator for Turns<'_> {
    type Item = Turn;

    fn next(&mut self) -> Option<Turn> {
        match self {
            Turns::One(turns) => turns.as_mut()?.next().copied(),
            Turns::Merged(merge) => merge.next(),
        }
    }
}

impl Iterator for Merge<'_> {
    type Item = Turn;

    fn next(&mut self) -> Option<Turn> {
        let Reverse((turn, id)) = self.heap.pop()?;
        let after = std::ops::Bound::Excluded(turn);
        let following = self.ready.classes[&id].turns.range((after, std::ops::Bound::Unbounded)).next();
        if let Some(next) = following {
            self.heap.push(Reverse((*next, id)));
        }
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> Arc<Properties> {
        Arc::new(Properties::new(pairs.iter().map(|(n, v)| (Arc::from(*n), Arc::from(*v)))))
    }

    fn turn(priority: i32, since: u64) -> Turn {
        Turn { priority, since: Position(since), slot: Slot(since as u32) }
    }

    fn order(ready: &Ready, offered: &Properties) -> Vec<u64> {
        ready.turns(offered).map(|turn| turn.since.0).collect()
    }

    #[test]
    fn a_worker_sees_the_classes_that_fit_it_merged_in_order() {
        let (any, linux, mac) =
            (properties(&[]), properties(&[("os", "linux")]), properties(&[("os", "mac")]));
        let mut ready = Ready::default();
        ready.know_kind(&linux);
        ready.insert(&any, turn(0, 1));
        ready.insert(&linux, turn(0, 2));
        ready.insert(&mac, turn(-9, 3));
        ready.insert(&any, turn(0, 4));
        ready.insert(&linux, turn(-1, 5));
        assert_eq!(order(&ready, &linux), [5, 1, 2, 4]);
        assert_eq!(order(&ready, &any), [1, 4], "a kind without an index is matched by a scan");
        ready.remove(&linux, turn(-1, 5));
        assert_eq!(order(&ready, &linux), [1, 2, 4]);
        assert!(ready.kinds_are_right());
    }

    #[test]
    fn an_empty_class_goes_away_and_takes_its_heads_along() {
        let linux = properties(&[("os", "linux")]);
        let mut ready = Ready::default();
        ready.know_kind(&linux);
        ready.insert(&linux, turn(0, 1));
        ready.remove(&linux, turn(0, 1));
        assert_eq!((ready.len(), ready.classes()), (0, 0));
        assert!(ready.kinds_are_right());
        assert_eq!(order(&ready, &linux), []);
    }

    #[test]
    fn too_many_kinds_start_over_and_stay_right() {
        let mut ready = Ready::default();
        ready.insert(&properties(&[]), turn(0, 1));
        for n in 0..=MAX_KINDS {
            ready.know_kind(&properties(&[("n", &n.to_string())]));
        }
        assert!(ready.kinds.len() <= MAX_KINDS);
        assert_eq!(order(&ready, &properties(&[("n", "0")])), [1]);
    }

    #[test]
    fn the_oldest_is_found_behind_urgent_newcomers() {
        let any = properties(&[]);
        let mut ready = Ready::default();
        for (priority, since) in [(5, 1), (0, 7), (-3, 9)] {
            ready.insert(&any, turn(priority, since));
        }
        assert_eq!(ready.oldest().map(|turn| turn.since), Some(Position(1)));
    }
}
