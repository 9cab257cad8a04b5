//! The newest batches that a standby holds, as it has read them from the database or received them from the owner.
//!
//! The owner sends a batch in parallel with its append. Whether that append succeeded is known later, from the owner or from
//! the database. Until then the batch is held but not applied. A standby that takes over appends what it holds
//! beyond the end of the database again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::Time;
use tokio::sync::watch;

use super::Error;
use super::batch_row::{BatchRow, Place};
use super::holdings::Holding;
use super::recent::{Compared, Recent};
use super::rules;
use crate::{Link, Position, Visit};

/// Cheap to clone: clones share their content.
#[derive(Clone, Default)]
pub struct Kept(Arc<Shared>);

#[derive(Default)]
struct Shared {
    held: Mutex<Held>,
    /// Changes with everything that a follower of the stream waits for.
    changes: watch::Sender<Stream>,
    /// Counts the batches that were received.
    received: watch::Sender<u64>,
}

/// What is known of the stream from the owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// The epoch of the owner that sends batches, while it does.
    pub fed_by: Option<u64>,
    /// The batches before this position are durable, as the owner has said.
    pub durable: Position,
    /// The owner's time when it was last heard, with its epoch.
    pub time: Option<(u64, Time)>,
    /// How often a connection with a stream was lost.
    pub losses: u64,
}

/// What a standby has in common with the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The database holds everything that the standby knows to be durable.
    Whole,
    /// The database has lost batches, and the standby or another node holds them.
    Behind,
    /// The database has another batch at a position that was durable.
    Forked { at: Position },
}

impl Kept {
    fn held(&self) -> MutexGuard<'_, Held> {
        // Every change leaves it whole.
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.held() = Held::default();
        self.0.changes.send_modify(|stream| *stream = Stream { losses: stream.losses, ..Stream::default() });
    }

    /// Where the stream of an owner should continue; none as long as nothing was read.
    pub fn end(&self) -> Option<Place> {
        self.held().recent.as_ref().map(Recent::last)
    }

    /// The last batch that is held.
    pub fn holding(&self) -> Holding {
        let held = self.held();
        let Some(recent) = &held.recent else { return Holding::default() };
        let epoch = recent.rows().last().map_or(0, |(_, row)| row.epoch as u64);
        Holding { epoch, next: recent.last().next }
    }

    /// Takes in a batch that the owner appends at this moment. Says whether the batch is held now; it is not when batches before
    /// it are missing.
    pub fn receive(&self, epoch: u64, before: Place, row: BatchRow) -> bool {
        let is_held = self.held().receive(before, row);
        self.0.received.send_modify(|count| *count += 1);
        self.0.changes.send_if_modified(|stream| {
            let fed_by = is_held.then_some(epoch);
            std::mem::replace(&mut stream.fed_by, fed_by) != fed_by
        });
        is_held
    }

    /// The owner says that the batches before `next` are durable, and what time it has.
    pub fn durable(&self, epoch: u64, next: Position, time: Time) {
        let durable = self.held().durable(next);
        self.0.changes.send_modify(|stream| {
            (stream.durable, stream.time) = (durable, Some((epoch, time)));
            // A stream that begins at the owner's end begins with this.
            stream.fed_by = Some(epoch);
        });
    }

    /// The stream has ended; because its connection was lost, or because the owner has cut it.
    pub fn stream_ended(&self, is_lost: bool) {
        self.0.changes.send_if_modified(|stream| {
            let was_fed = stream.fed_by.take().is_some();
            stream.losses += u64::from(was_fed && is_lost);
            was_fed
        });
    }

    /// What is known of the stream, and its changes.
    pub fn stream(&self) -> watch::Receiver<Stream> {
        self.0.changes.subscribe()
    }

    /// Changes with every batch that is received, durable or not.
    pub fn received(&self) -> watch::Receiver<u64> {
        self.0.received.subscribe()
    }

    /// Visits the records of the durable batches that were received, as [`crate::Reader::follow`] does. Visits nothing when they do not
    /// follow on `after`; the database tells why.
    pub fn follow(&self, from: Position, after: Option<Link>, visit: &mut Visit<'_>) -> Option<Link> {
        let (mut last, mut next) = (after?, from);
        // Batches are received meanwhile.
        let ready = self.held().ready(from);
        for row in ready {
            let body = row.verify(last).ok().filter(|_| row.place.first == next);
            let Some(body) = body else { break };
            for (position, bytes) in row.records(&body).map_while(Result::ok) {
                if visit(position, bytes).is_break() {
                    return Some(last);
                }
            }
            (last, next) = (row.place.link, row.place.next);
        }
        Some(last)
    }

    /// The last batch of the database, where nothing was read yet.
    pub fn begin(&self, place: Place) {
        let mut held = self.held();
        held.recent.get_or_insert_with(|| Recent::new(place));
        held.durable = held.durable.max(place.next);
    }

    /// A batch was read from the database. `body` is that of the row, unpacked. Fails when another batch is known to be durable at
    /// its position.
    pub fn found(&self, row: &BatchRow, body: &[u8]) -> Result<(), Error> {
        self.held().found(row, body)
    }

    /// The position before which all batches are known to be durable.
    pub fn known_durable(&self) -> Position {
        self.held().durable
    }

    /// What to read from the database to see how it stands to the batches: from which position on, and how many batches at
    /// most. None while nothing is held.
    pub fn compared(&self) -> Option<(Position, usize)> {
        self.held().recent.as_ref().map(Recent::compared)
    }

    /// How the database stands to the batches, with what it has stored from that position on.
    pub fn standing(&self, stored: &[Place]) -> Standing {
        let held = self.held();
        held.recent.as_ref().map_or(Standing::Whole, |recent| recent.compare(stored).standing(held.durable))
    }

    /// The batches, and the position before which they are known to be durable.
    pub(super) fn batches(&self) -> Option<(Recent, Position)> {
        let held = self.held();
        held.recent.clone().map(|recent| (recent, held.durable))
    }
}

/// Batches without gaps. Those before `durable` are known to be durable.
#[derive(Default)]
struct Held {
    recent: Option<Recent>,
    durable: Position,
}

impl Held {
    fn receive(&mut self, before: Place, row: BatchRow) -> bool {
        let place = row.place;
        let Some(recent) = &mut self.recent else {
            let mut recent = Recent::new(before);
            recent.push(row);
            self.recent = Some(recent);
            return true;
        };
        if recent.contains(place) {
            return true;
        }
        // Another batch than one that never became durable: a new owner has begun there.
        if place.first >= self.durable && recent.contains(before) {
            recent.truncate(place.first);
        }
        let is_next = recent.last() == before;
        if is_next {
            recent.push(row);
        }
        is_next
    }

    fn durable(&mut self, next: Position) -> Position {
        let end = self.recent.as_ref().map_or(Position::ZERO, |recent| recent.last().next);
        self.durable = self.durable.max(next.min(end));
        self.durable
    }

    fn ready(&self, from: Position) -> Vec<BatchRow> {
        let Some(recent) = &self.recent else { return Vec::new() };
        let ready = recent.rows_from(from).take_while(|row| rules::is_ready(row.place.next <= self.durable));
        ready.map(BatchRow::bare).collect()
    }

    fn found(&mut self, row: &BatchRow, body: &[u8]) -> Result<(), Error> {
        let place = row.place;
        let follows = |link: Link| link.then(place.first, place.next, body) == place.link;
        match &mut self.recent {
            Some(recent) if place.first < recent.base().first || recent.contains(place) => {}
            Some(_) if !rules::gives_way(place.first >= self.durable) => {
                return Err(Error::Forked(place.first));
            }
            // What was held from here on never became durable.
            Some(recent) => {
                recent.truncate(place.first);
                let last = recent.last();
                if last.next == place.first && follows(last.link) {
                    recent.push(row.bare());
                } else {
                    *recent = Recent::new(place);
                }
            }
            None => self.recent = Some(Recent::new(place)),
        }
        self.durable = self.durable.max(place.next);
        Ok(())
    }
}

impl Compared {
    /// How the database stands to the batches of a node, of which those before `durable` were durable.
    fn standing(self, durable: Position) -> Standing {
        match self {
            Compared::Same | Compared::Continued(_) | Compared::Trimmed { .. } => Standing::Whole,
            Compared::Lost { after } if after.next >= durable => Standing::Whole,
            Compared::Lost { .. } if rules::can_come_back() => Standing::Behind,
            Compared::Lost { after } => Standing::Forked { at: after.next },
            Compared::Forked { at } if rules::gives_way(at >= durable) => Standing::Whole,
            Compared::Forked { at } => Standing::Forked { at },
            // Another node may hold what is lost.
            Compared::Unknown { .. } => Standing::Behind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, ClusterId};

    fn origin() -> Place {
        Place { first: Position(0), next: Position(1), link: Link::origin(ClusterId([1; 16]), 0) }
    }

    fn row(before: Place, text: &[u8]) -> BatchRow {
        let mut batch = BatchBuilder::new(before.next);
        batch.push(text).expect("it fits");
        BatchRow::new(&batch.finish(1), before.link, 1)
    }

    fn body(row: &BatchRow, before: Place) -> Vec<u8> {
        row.verify(before.link).expect("it follows")
    }

    fn firsts(rows: &[BatchRow]) -> Vec<u64> {
        rows.iter().map(|row| row.place.first.0).collect()
    }

    #[test]
    fn a_received_batch_is_held_at_once_and_ready_once_it_is_durable() {
        let kept = Kept::default();
        let (a, time) = (row(origin(), b"a"), Time(7));
        let b = row(a.place, b"b");
        assert!(kept.receive(1, origin(), a.clone()));
        assert!(kept.receive(1, a.place, b.clone()));
        assert_eq!(kept.end(), Some(b.place));
        assert!(kept.held().ready(Position(1)).is_empty());
        kept.durable(1, b.place.first, time);
        assert_eq!(firsts(&kept.held().ready(Position(1))), [1]);
        // What was not received is not durable here, whatever the owner says.
        kept.durable(1, Position(9), time);
        assert_eq!(firsts(&kept.held().ready(Position(2))), [2]);
        let stream = *kept.stream().borrow();
        assert_eq!(
            stream,
            Stream { fed_by: Some(1), durable: b.place.next, time: Some((1, time)), losses: 0 }
        );
    }

    #[test]
    fn a_gap_in_the_stream_is_not_bridged_and_ends_the_feed() {
        let kept = Kept::default();
        let a = row(origin(), b"a");
        let b = row(a.place, b"b");
        let c = row(b.place, b"c");
        assert!(kept.receive(1, origin(), a.clone()));
        assert!(!kept.receive(1, b.place, c.clone()));
        assert_eq!(kept.stream().borrow().fed_by, None);
        assert_eq!(kept.end(), Some(a.place), "what was held stays");
        // The database closes the gap, and the stream goes on.
        kept.found(&b, &body(&b, a.place)).expect("it follows");
        assert!(kept.receive(1, b.place, c.clone()));
        assert!(kept.receive(1, b.place, c.clone()), "a repeat changes nothing");
        assert_eq!(kept.end(), Some(c.place));
    }

    #[test]
    fn a_batch_that_never_became_durable_gives_way_to_another() {
        let kept = Kept::default();
        let a = row(origin(), b"a");
        let (never, other) = (row(a.place, b"never"), row(a.place, b"other"));
        let later = row(never.place, b"later");
        for found_in_database in [true, false] {
            kept.clear();
            assert!(kept.receive(1, origin(), a.clone()));
            kept.durable(1, a.place.next, Time(1));
            assert!(kept.receive(1, a.place, never.clone()) && kept.receive(1, never.place, later.clone()));
            if found_in_database {
                kept.found(&other, &body(&other, a.place)).expect("nothing else is durable there");
            } else {
                assert!(kept.receive(2, a.place, other.clone()));
            }
            assert_eq!(kept.end(), Some(other.place));
        }
    }

    #[test]
    fn a_durable_batch_gives_way_to_none_that_is_received() {
        let kept = Kept::default();
        let a = row(origin(), b"a");
        kept.receive(1, origin(), a.clone());
        kept.durable(1, a.place.next, Time(1));
        let other = row(origin(), b"x");
        assert!(!kept.receive(2, origin(), other.clone()));
        let forked = kept.found(&other, &body(&other, origin()));
        assert!(matches!(forked, Err(Error::Forked(Position(1)))), "{forked:?}");
        assert_eq!(kept.end(), Some(a.place));
    }

    #[test]
    fn only_the_loss_of_a_stream_that_fed_counts() {
        let kept = Kept::default();
        kept.stream_ended(true);
        kept.receive(1, origin(), row(origin(), b"a"));
        kept.stream_ended(false);
        assert_eq!(kept.stream().borrow().losses, 0);
        kept.receive(1, origin(), row(origin(), b"a"));
        kept.stream_ended(true);
        assert_eq!(*kept.stream().borrow(), Stream { losses: 1, ..Stream::default() });
    }

    #[test]
    fn another_batch_is_a_fork_only_where_ours_was_durable() {
        let at = Position(5);
        assert_eq!(Compared::Forked { at }.standing(Position(5)), Standing::Whole);
        assert_eq!(Compared::Forked { at }.standing(Position(6)), Standing::Forked { at });
        let after = Place { first: Position(1), next: Position(5), ..origin() };
        assert_eq!(Compared::Lost { after }.standing(Position(5)), Standing::Whole);
        assert_eq!(Compared::Lost { after }.standing(Position(6)), Standing::Behind);
    }
}
