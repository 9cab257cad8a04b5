//! The newest batches that a node holds, and how they compare with what the database holds.
//!
//! A failover of PostgreSQL to a replica that lacks the last commits undoes appends that were acknowledged. As long as
//! the writer or a standby lives it still has these batches, and appends them again before anything else. The links make
//! this safe: a batch fits only behind the batch that it was made for.

use std::collections::VecDeque;

use super::batch_row::{BatchRow, Place};
use crate::Position;

/// Memory for batches that a failover could undo.
const MAX_BYTES: usize = 64 << 20;

/// Batches without gaps, the newest last.
#[derive(Clone, Debug)]
pub(super) struct Recent {
    /// The batch before the oldest of `rows`; it was found or dropped, and cannot be appended again.
    base: Place,
    rows: VecDeque<BatchRow>,
    bytes: usize,
}

/// How the batches of the database compare with the batches of a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    /// The database ends with the writer's last batch.
    Same,
    /// The database goes on after the writer's last batch: with the given one.
    Continued(Place),
    /// The database ends before it. All later batches of the writer are gone.
    Lost { after: Place },
    /// The database holds another batch at a position that was durable.
    Forked { at: Position },
    /// The database has forgotten the writer's batches, because others wrote so many more.
    Trimmed { first: Position },
    /// The database ends before the oldest batch that the writer knows.
    Unknown { next: Position },
}

impl Recent {
    pub(super) fn new(base: Place) -> Recent {
        Recent { base, rows: VecDeque::new(), bytes: 0 }
    }

    /// The last batch.
    pub(super) fn last(&self) -> Place {
        self.rows.back().map_or(self.base, |row| row.place)
    }

    /// What to read from the database to compare it: from which position on, and how many batches at most.
    pub(super) fn compared(&self) -> (Position, usize) {
        (self.base.first, self.rows.len() + 2)
    }

    /// The oldest batch to compare.
    pub(super) fn base(&self) -> Place {
        self.base
    }

    pub(super) fn push(&mut self, row: BatchRow) {
        self.bytes += row.bytes();
        self.rows.push_back(row);
        while self.bytes > MAX_BYTES
            && let Some(oldest) = self.rows.pop_front()
        {
            self.bytes -= oldest.bytes();
            self.base = oldest.place;
        }
    }

    /// The rows in order, each with the place before it.
    pub(super) fn rows(&self) -> impl Iterator<Item = (Place, &BatchRow)> {
        let befores = std::iter::once(self.base).chain(self.rows.iter().map(|row| row.place));
        befores.zip(&self.rows)
    }

    /// The rows from this position on.
    pub(super) fn rows_from(&self, first: Position) -> impl Iterator<Item = &BatchRow> {
        self.rows.range(self.rows.partition_point(|row| row.place.first < first)..)
    }

    /// The first row at this position or after it, with the place before it.
    pub(super) fn at(&self, first: Position) -> Option<(Place, &BatchRow)> {
        let at = self.rows.partition_point(|row| row.place.first < first);
        let before = at.checked_sub(1).map_or(self.base, |before| self.rows[before].place);
        self.rows.get(at).map(|row| (before, row))
    }

    /// Whether this batch is one of these, also if it can no longer be appended again.
    pub(super) fn contains(&self, place: Place) -> bool {
        self.base == place || self.at(place.first).is_some_and(|(_, row)| row.place == place)
    }

    /// Drops the batches from a position on.
    pub(super) fn truncate(&mut self, from: Position) {
        while self.rows.back().is_some_and(|row| row.place.first >= from)
            && let Some(last) = self.rows.pop_back()
        {
            self.bytes -= last.bytes();
        }
    }

    /// The same batches without what they change in the tables.
    pub(super) fn bare(&self) -> Recent {
        let mut bare = Recent::new(self.base);
        self.rows.iter().for_each(|row| bare.push(row.bare()));
        bare
    }

    /// Forgets what the batches write into the tables.
    pub(super) fn forget_tables(&mut self) {
        for row in &mut self.rows {
            if let Some(without) = row.without_tables() {
                self.bytes -= row.bytes() - without.bytes();
                *row = without;
            }
        }
    }

    /// The batches after the given one, each with the place before it.
    pub(super) fn after(&self, place: Place) -> Vec<(Place, BatchRow)> {
        let after = self.rows().filter(|(_, row)| row.place.first >= place.next);
        after.map(|(before, row)| (before, row.clone())).collect()
    }

    /// Compares with the batches that the database holds from the base on, in order, as many as it has.
    pub(super) fn compare(&self, stored: &[Place]) -> Compared {
        let known = || std::iter::once(self.base).chain(self.rows.iter().map(|row| row.place));
        let Some(oldest) = stored.first() else { return Compared::Unknown { next: self.base.first } };
        if oldest.first >= self.last().next {
            return Compared::Trimmed { first: oldest.first };
        }
        // A trim may have removed the first of ours.
        let mut ours = known().skip_while(|place| place.first < oldest.first).peekable();
        let mut after = None;
        for place in stored {
            match (ours.next(), after) {
                (Some(known), _) if known == *place => after = Some(*place),
                (None, Some(_)) => return Compared::Continued(*place),
                _ => return Compared::Forked { at: place.first },
            }
        }
        match (ours.next(), after) {
            (Some(_), Some(after)) => Compared::Lost { after },
            (_, _) => Compared::Same,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, ClusterId, Link};

    fn base() -> Place {
        Place { first: Position(0), next: Position(1), link: Link::origin(ClusterId([1; 16]), 0) }
    }

    fn row(before: Place, text: &[u8]) -> BatchRow {
        let mut batch = BatchBuilder::new(before.next);
        batch.push(text).expect("it fits");
        BatchRow::new(&batch.finish(1), before.link, 1)
    }

    fn three() -> (Recent, [Place; 3]) {
        let mut recent = Recent::new(base());
        let places = [b"a", b"b", b"c"].map(|text| {
            let row = row(recent.last(), text);
            recent.push(row.clone());
            row.place
        });
        (recent, places)
    }

    #[test]
    fn the_batches_of_the_database_are_the_same_or_go_on() {
        let (recent, [a, b, c]) = three();
        let other = row(c, b"d").place;
        assert_eq!(recent.compare(&[base(), a, b, c]), Compared::Same);
        assert_eq!(recent.compare(&[base(), a, b, c, other]), Compared::Continued(other));
        assert_eq!(recent.compare(&[b, c]), Compared::Same, "the rest was trimmed");
        assert_eq!(Recent::new(base()).compare(&[base()]), Compared::Same);
    }

    #[test]
    fn lost_batches_are_named_and_kept() {
        let (recent, [a, b, c]) = three();
        assert_eq!(recent.compare(&[base(), a]), Compared::Lost { after: a });
        let again: Vec<_> = recent.after(a).into_iter().map(|(before, row)| (before, row.place)).collect();
        assert_eq!(again, [(a, b), (b, c)]);
        assert_eq!(recent.compare(&[base()]), Compared::Lost { after: base() });
        assert_eq!(recent.compare(&[]), Compared::Unknown { next: Position(0) });
    }

    #[test]
    fn another_batch_at_a_durable_position_is_a_fork() {
        let (recent, [a, b, _]) = three();
        let other = row(a, b"x").place;
        assert_eq!(recent.compare(&[base(), a, other]), Compared::Forked { at: b.first });
        assert_eq!(
            recent.compare(&[base(), a, other, row(other, b"y").place]),
            Compared::Forked { at: b.first }
        );
    }

    #[test]
    fn a_writer_that_slept_until_its_batches_were_trimmed_knows_it() {
        let (recent, [_, _, c]) = three();
        let later = row(c, b"d").place;
        assert_eq!(recent.compare(&[later]), Compared::Trimmed { first: later.first });
    }

    #[test]
    fn memory_for_batches_is_bounded() {
        let mut recent = Recent::new(base());
        for n in 0..80_u8 {
            let mut row = row(recent.last(), &[n]);
            row.body = vec![n; 1 << 20].into();
            recent.push(row);
        }
        assert!(recent.bytes <= MAX_BYTES);
        assert_eq!(recent.base().next, recent.rows[0].place.first);
    }
}
