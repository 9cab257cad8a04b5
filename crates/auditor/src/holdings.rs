//! The batches that the process of each node holds, by what has reached it. Nothing here is what a node says about itself.

use std::collections::{BTreeMap, BTreeSet};

use authority::Position;
use ledger::Link;
use ledger::postgres::Place;

/// What the nodes hold, and who ever held a batch.
#[derive(Default)]
pub(crate) struct Holdings {
    nodes: BTreeMap<u64, Memory>,
    /// The nodes that ever received a batch or read it.
    receivers: BTreeMap<[u8; 16], BTreeSet<u64>>,
    /// The node that has made a batch.
    makers: BTreeMap<[u8; 16], u64>,
}

/// Batches without gaps, each by its first position.
#[derive(Default)]
struct Memory {
    /// The batch before the oldest one: it can be compared, and not appended again.
    base: Option<Place>,
    batches: BTreeMap<Position, Held>,
    /// What it has begun to append itself, behind some of these.
    own: BTreeMap<Position, Held>,
    /// What is before this position was durable, as the node has learned from the owner or has read.
    known: Position,
}

#[derive(Clone, Copy)]
struct Held {
    place: Place,
    /// True time.
    since: u64,
}

impl Memory {
    fn end(&self) -> Option<Place> {
        self.batches.last_key_value().map(|(_, held)| held.place).or(self.base)
    }

    fn at(&self, first: Position) -> Option<Place> {
        self.batches.get(&first).map(|held| held.place).or(self.base.filter(|base| base.first == first))
    }

    /// The batches that it can append again.
    fn all(&self) -> impl Iterator<Item = &Held> {
        self.batches.values().chain(self.own.values())
    }

    /// Adds a batch behind another one, in the place of what was held there. Says whether it is held now.
    fn add(&mut self, before: Place, held: Held) -> bool {
        if self.base.is_none() {
            self.base = Some(before);
        }
        if self.at(held.place.first) == Some(held.place) {
            return true;
        }
        let follows = self.at(before.first) == Some(before);
        if follows {
            self.batches.split_off(&held.place.first);
            self.batches.insert(held.place.first, held);
        }
        follows
    }

    /// A batch was read from the database, which has it in the place of any that was not durable.
    fn read(&mut self, place: Place, since: u64) {
        let is_older = self.base.is_some_and(|base| place.first < base.first);
        let is_held = self.at(place.first) == Some(place);
        if !is_older && !is_held {
            if place.first < self.known {
                return;
            }
            self.batches.split_off(&place.first);
            match self.end().filter(|end| end.next == place.first) {
                Some(_) => drop(self.batches.insert(place.first, Held { place, since })),
                None => (self.base, self.batches) = (Some(place), BTreeMap::new()),
            }
        }
        self.known = self.known.max(place.next);
    }
}

impl Holdings {
    /// The process is gone, or begins again: it holds nothing. Or it holds no more what it wanted to append itself.
    pub(crate) fn forgot(&mut self, node: u64, own_alone: bool) {
        match self.nodes.get_mut(&node).filter(|_| own_alone) {
            Some(memory) => memory.own.clear(),
            None => drop(self.nodes.remove(&node)),
        }
    }

    /// An owner has sent a batch, which has arrived. Nothing that is sent takes the place of what was durable.
    pub(crate) fn received(&mut self, node: u64, before: Place, place: Place, since: u64) {
        let memory = self.nodes.entry(node).or_default();
        let gives_way = place.first >= memory.known || memory.at(place.first) == Some(place);
        if gives_way && memory.add(before, Held { place, since }) {
            self.receivers.entry(place.link.0).or_default().insert(node);
        }
    }

    pub(crate) fn read(&mut self, node: u64, place: Place, since: u64) {
        self.nodes.entry(node).or_default().read(place, since);
        self.receivers.entry(place.link.0).or_default().insert(node);
    }

    /// The node has begun to append a batch: its own, or one that was sent to it.
    pub(crate) fn begun(&mut self, node: u64, place: Place, since: u64) {
        if !self.was_received_by(place.link, |receiver| receiver == node) {
            self.makers.entry(place.link.0).or_insert(node);
        }
        let memory = self.nodes.entry(node).or_default();
        if memory.all().all(|held| held.place != place) {
            memory.own.split_off(&place.first);
            memory.own.insert(place.first, Held { place, since });
        }
    }

    /// The node has learned from the owner that what is before a position is durable, as far as the node holds it.
    pub(crate) fn learned_durable(&mut self, node: u64, next: Position) {
        let memory = self.nodes.entry(node).or_default();
        let end = memory.end().map_or(Position::ZERO, |end| end.next);
        memory.known = memory.known.max(next.min(end));
    }

    /// What the node has begun to append is durable. It gives up what it was sent in the place of that.
    pub(crate) fn appended(&mut self, node: u64, next: Position) {
        let memory = self.nodes.entry(node).or_default();
        if let Some((first, _)) = memory.own.first_key_value() {
            memory.batches.split_off(first);
        }
        memory.known = next;
    }

    pub(crate) fn maker(&self, link: Link) -> Option<u64> {
        self.makers.get(&link.0).copied()
    }

    /// Whether a node has held this batch, as one that was sent to it or read by it.
    pub(crate) fn was_received_by(&self, link: Link, is_meant: impl Fn(u64) -> bool) -> bool {
        self.receivers.get(&link.0).is_some_and(|nodes| nodes.iter().any(|node| is_meant(*node)))
    }

    /// The nodes that can append this batch again, and have had it since then.
    pub(crate) fn holders(&self, lost: Place, since: u64) -> impl Iterator<Item = u64> {
        let is_lost = move |held: &Held| held.place == lost && held.since <= since;
        self.nodes.iter().filter(move |(_, memory)| memory.all().any(is_lost)).map(|(node, _)| *node)
    }

    /// The batches that a node knows to have been durable, of those that end after a position.
    pub(crate) fn known(&self, node: u64, after: Position) -> Vec<Place> {
        let Some(memory) = self.nodes.get(&node) else { return Vec::new() };
        let places = memory.base.into_iter().chain(memory.all().map(|held| held.place));
        places.filter(|place| place.next <= memory.known && place.next > after).collect()
    }

    /// The batches that a node has begun to append.
    pub(crate) fn own(&self, node: u64) -> impl Iterator<Item = Place> {
        self.nodes.get(&node).into_iter().flat_map(|memory| memory.own.values().map(|held| held.place))
    }

    /// The batch that a node holds and that ends before this position.
    pub(crate) fn ending(&self, node: u64, next: Position) -> Option<Place> {
        let memory = self.nodes.get(&node)?;
        let places = || memory.base.into_iter().chain(memory.all().map(|held| held.place));
        places().filter(|place| place.next == next).last()
    }

    /// The batch before the oldest one that a node can append again.
    pub(crate) fn base(&self, node: u64) -> Option<Place> {
        self.nodes.get(&node)?.base
    }
}
