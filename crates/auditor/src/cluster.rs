//! Judges what several nodes do with one ledger: one history without forks, one writer for each epoch, no answer of an owner
//! that was replaced, no time that runs ahead, and no loss that the product does not allow.

use std::collections::{BTreeMap, BTreeSet};

use authority::{Position, Time};
use ledger::Link;
use ledger::postgres::Place;

use super::history::{AskId, Entry, StoredBatch};
use super::holdings::Holdings;
use super::{Auditor, ensure};

/// How far time may stay behind at a takeover: as long as the last owner may have been heard too late.
const MAX_BEHIND_MS: i64 = 60_000;

/// What the nodes have done so far.
#[derive(Default)]
pub(crate) struct ClusterModel {
    /// Where the history ends, and the link of its last batch. Unknown before the first batch.
    end: Option<(Position, Link)>,
    /// The node that began each epoch, and where.
    writers: BTreeMap<u64, (u64, Position)>,
    /// The newest epoch that ever was, on any server.
    newest: u64,
    /// Every batch that was ever stored.
    links: BTreeSet<[u8; 16]>,
    /// The batch that was stored last at each position, and how many had been stored then.
    last_stored: BTreeMap<Position, (Place, u64)>,
    stored: u64,
    /// What each node holds.
    holdings: Holdings,
    /// How far the clock of each owner is ahead of the true time, by its epoch, and whether it has told others its time.
    leads_ms: BTreeMap<u64, (i64, bool)>,
}

impl ClusterModel {
    /// Whether another batch was stored in the place of this one, later than this one.
    fn is_replaced(&self, place: Place) -> bool {
        let overlaps = |other: &Place| other.next > place.first && other.first < place.next;
        let own =
            self.last_stored.get(&place.first).filter(|(last, _)| *last == place).map_or(0, |(_, at)| *at);
        let is_later = |(other, at): &(Place, u64)| overlaps(other) && *other != place && *at > own;
        self.links.contains(&place.link.0) && self.last_stored.values().any(is_later)
    }
}

impl Auditor {
    /// The epoch of the last owner that has stored a batch.
    pub fn newest_epoch(&self) -> u64 {
        self.cluster.writers.last_key_value().map_or(0, |(newest, _)| *newest)
    }

    /// Whether an owner at this epoch was replaced: by a later epoch, or by others who have gone on without batches that it knows to have
    /// been durable, after a failover that has undone epochs.
    pub fn is_owner_replaced(&self, node: u64, epoch: u64) -> bool {
        let newest = self.cluster.writers.last_key_value().map(|(newest, (writer, _))| (*newest, *writer));
        if newest == Some((epoch, node)) {
            return false;
        }
        let is_left_behind = || {
            let known = self.cluster.holdings.known(node, Position::ZERO);
            known.into_iter().any(|place| self.cluster.is_replaced(place))
        };
        self.newest_epoch() > epoch || is_left_behind()
    }

    pub(super) fn stored(&mut self, batch: &StoredBatch) -> Result<(), String> {
        let StoredBatch { node, epoch, first, next, link, body } = batch;
        let model = &mut self.cluster;
        if let Some((end, before)) = model.end {
            ensure(*first == end, format!("it does not follow the end of the history, which is {end}"))?;
            ensure(before.then(*first, *next, body) == *link, "its link does not fit the batch before it")?;
        }
        model.end = Some((*next, *link));
        model.stored += 1;
        let place = Place { first: *first, next: *next, link: *link };
        model.last_stored.insert(*first, (place, model.stored));
        // Whoever appends a batch again does so for its writer.
        if model.links.insert(link.0) {
            let newest = model.writers.last_key_value().map_or(0, |(newest, _)| *newest);
            ensure(*epoch >= newest, format!("epoch {newest} has begun"))?;
            model.newest = model.newest.max(*epoch);
            let maker = model.holdings.maker(*link).unwrap_or(*node);
            let (writer, _) = *model.writers.entry(*epoch).or_insert((maker, *first));
            // A standby appends what the owner had sent to it, also if the owner could not append it.
            let is_sent = model.holdings.was_received_by(*link, |receiver| receiver == *node);
            ensure(writer == *node || is_sent, format!("node {writer} owns this epoch"))?;
        }
        Ok(())
    }

    /// A failover has undone what is not before `next`, and perhaps every owner's announcement.
    pub(super) fn undone(&mut self, next: Position, link: Link, names_owner: bool) {
        if !names_owner {
            self.cluster.leads_ms.clear();
        }
        self.cluster.end = Some((next, link));
        self.cluster.writers.retain(|_, (_, first)| *first < next);
    }

    /// An owner that was replaced before a request was sent cannot know the answer.
    pub(super) fn answered_by(&self, ask: AskId, epoch: u64) -> Result<(), String> {
        let asked_at = self.asks.get(&ask).map(|ask| ask.asked_at);
        let replaced = self.takeovers.get(epoch as usize);
        let is_too_late = replaced.zip(asked_at).is_some_and(|(replaced, asked_at)| asked_at >= *replaced);
        ensure(!is_too_late, format!("epoch {} had taken over before it was asked", epoch + 1))
    }

    pub(super) fn gave_up(&self, node: u64, epoch: u64) -> Result<(), String> {
        // One that has stored nothing yet may be refused by the owner that it wants to replace, or by another one of this epoch.
        let has_begun = self.cluster.writers.get(&epoch).is_some_and(|(writer, _)| *writer == node);
        let is_replaced = self.cluster.newest > epoch || !has_begun;
        ensure(is_replaced, "it gave the ledger up although nobody else had written")
    }

    /// A standby applies what is stored, and nothing else.
    pub(super) fn followed(&self, node: u64, next: Position) -> Result<(), String> {
        let last = self.cluster.holdings.ending(node, next);
        let is_stored =
            last.is_none_or(|last| last.first.0 == 0 || self.cluster.links.contains(&last.link.0));
        ensure(is_stored, format!("it has applied what is not durable before {next}"))
    }

    /// What a node holds has changed.
    pub(super) fn holds(&mut self, entry: &Entry) {
        let holdings = &mut self.cluster.holdings;
        match entry {
            Entry::Forgot { node, own_alone } => holdings.forgot(*node, *own_alone),
            Entry::Fed { node, before, place, now } => holdings.received(*node, *before, *place, *now),
            Entry::Read { node, place, now } => holdings.read(*node, *place, *now),
            Entry::Begun { node, place, now } => holdings.begun(*node, *place, *now),
            Entry::LearnedDurable { node, next } => holdings.learned_durable(*node, *next),
            _ => {}
        }
    }

    /// Whether the process of a node knows that this batch was durable.
    pub fn is_known(&self, node: u64, place: Place) -> bool {
        self.cluster.holdings.known(node, place.first).contains(&place)
    }

    /// A node may refuse a history only for a batch that it knows to have been durable: another one has taken its place, or it is
    /// gone and the node cannot append it again.
    pub(super) fn refused_history(&self, node: u64, at: Position) -> Result<(), String> {
        let model = &self.cluster;
        // It may have noticed only that what comes next does not follow what it knows.
        let known = model.holdings.known(node, Position(at.0.saturating_sub(1)));
        let is_gone = |place: &Place| model.end.is_some_and(|(end, _)| end <= place.first);
        let cannot_append =
            model.holdings.base(node).is_some_and(|base| known.contains(&base) && is_gone(&base));
        // An owner knows that its batch is stored while it waits for a standby to receive it.
        let own = model.holdings.own(node).filter(|own| own.next >= at);
        let is_replaced = known.iter().copied().chain(own).any(|place| model.is_replaced(place));
        ensure(is_replaced || cannot_append, "it knows of no durable batch that another one has replaced")
    }

    /// An owner counts everything before `next` as recorded. Its first batch, on which no answer rests, makes it the owner.
    pub(super) fn appended(&mut self, node: u64, next: Position, is_first: bool) -> Result<(), String> {
        self.cluster.holdings.appended(node, next);
        let last = self.cluster.holdings.ending(node, next).ok_or("it was never appended")?;
        let is_received = self.cluster.holdings.was_received_by(last.link, |receiver| receiver != node);
        ensure(
            !self.rules.answers_wait_for_standby || is_received || is_first,
            format!("no standby has received what is before {next}"),
        )
    }

    /// Leases end when the owner's time says so. Time that ran ahead at a takeover would end them early.
    pub(super) fn clock(&mut self, epoch: u64, now: u64, time: Time) -> Result<(), String> {
        let lead_ms = time.0 as i64 - now as i64;
        // An owner may learn late that it was one. A failover may undo epochs, so that a later one has the number of one before.
        let is_late = epoch < self.newest_epoch();
        if is_late {
            return Ok(());
        }
        let leads = &mut self.cluster.leads_ms;
        leads.split_off(&epoch);
        let last = leads.values().rev().find(|(_, is_announced)| *is_announced).map(|(last, _)| *last);
        leads.insert(epoch, (lead_ms, false));
        let Some(last) = last else { return Ok(()) };
        ensure(lead_ms <= last, format!("it is {} ms ahead of the last owner's time", lead_ms - last))?;
        let behind_ms = last - lead_ms;
        ensure(behind_ms <= MAX_BEHIND_MS, format!("it is {behind_ms} ms behind the last owner's time"))
    }

    pub(super) fn stored_in_vain(&mut self, epoch: u64) {
        self.cluster.newest = self.cluster.newest.max(epoch);
    }

    pub(super) fn announced(&mut self, epoch: u64) {
        self.cluster.leads_ms.get_mut(&epoch).into_iter().for_each(|(_, is_announced)| *is_announced = true);
    }

    /// Records are gone, and others take their positions: the history goes on as if they had never been. Whatever was
    /// answered meanwhile counts as lost too.
    pub(super) fn lost(&mut self, place: Place, since: u64, excused: &[u64]) -> Result<(), String> {
        let (from, newest) = (place.first, self.position);
        let holder = self.cluster.holdings.holders(place, since).find(|id| !excused.contains(id));
        ensure(
            holder.is_none(),
            format!(
                "records {from} to {newest} are lost although node {} lives, and holds what was lost",
                holder.unwrap_or_default()
            ),
        )?;
        let entries = self.entries.take().ok_or("what was read is not kept")?;
        let is_lost = |entry: &Entry| matches!(entry, Entry::Recorded(record) if record.position >= from);
        let at = entries.iter().position(is_lost).unwrap_or(entries.len());
        let mut again = Auditor::new(self.rules.clone());
        again.entries = Some(Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            let is_kept = match entry {
                Entry::Asked { .. } | Entry::Received { .. } => true,
                Entry::Recorded(_) | Entry::Answered { .. } | Entry::Applied { .. } | Entry::Started => {
                    index < at
                }
                _ => false,
            };
            if is_kept {
                again.read(entry)?;
            }
        }
        // Their answers may be on their way, and rest on what is lost.
        let is_open = |ask: &AskId| {
            !entries.iter().any(|entry| matches!(entry, Entry::Answered { ask: of, .. } if of == ask))
        };
        again.undone_asks = self.asks.keys().filter(|ask| is_open(ask)).copied().collect();
        again.coverage = std::mem::take(&mut self.coverage);
        again.cluster = std::mem::take(&mut self.cluster);
        *self = again;
        Ok(())
    }
}
