//! The open batch: records that were decided and applied, but are not on their way to the disk yet. What does not fit
//! into one batch goes into the next, so no request is too large to be recorded.

use std::collections::VecDeque;

use authority::{Event, Position, State, Time};
use ledger::changes::Before;
use ledger::{Batch, BatchBuilder, Changes, WantedChanges, record};

use crate::batch_stats::BatchStats;
use crate::journal_line::JournalLine;

/// What there is to say about a batch once it is durable.
#[derive(Default)]
pub struct Notes {
    pub lines: Vec<JournalLine>,
    pub stats: BatchStats,
}

pub(super) struct Journal {
    open: BatchBuilder,
    /// Batches that are full and go before the open one.
    full: VecDeque<(Batch, Notes)>,
    /// What there will be to say about the open batch, and about the one in flight.
    notes: Notes,
    notes_in_flight: Option<Notes>,
    spare: Option<Batch>,
    scratch: Vec<u8>,
    wanted: WantedChanges,
    /// What the open batch changes, as far as the ledger wants to know.
    changes: Box<Changes>,
}

impl Journal {
    pub(super) fn new(durable: Position) -> Journal {
        Journal {
            open: BatchBuilder::new(durable.next()),
            full: VecDeque::new(),
            notes: Notes::default(),
            notes_in_flight: None,
            spare: None,
            scratch: Vec::new(),
            wanted: WantedChanges::Nothing,
            changes: Box::default(),
        }
    }

    /// Collects what each batch changes, for a ledger that wants to know.
    pub(super) fn collect_changes(&mut self, wanted: WantedChanges) {
        self.wanted = wanted;
    }

    pub(super) fn bytes(&self) -> usize {
        self.full.iter().map(|(batch, _)| batch.body_bytes()).sum::<usize>() + self.open.body_bytes()
    }

    /// Applies an event to the state and adds its record. An event that does not fit is a bug: deciding and
    /// applying disagree, and going on would make it true.
    pub(super) fn write(&mut self, state: &mut State, now: Time, event: &Event) {
        let before = event.task().and_then(|id| state.task(id));
        let prev = before.map(|task| task.last);
        self.scratch.clear();
        record::encode(now, prev, event, &mut self.scratch);
        if !self.open.fits(self.scratch.len()) {
            let full = self.close(state, now);
            self.full.push_back(full);
        }
        self.notes.stats.note(before, event, now);
        let held = (self.wanted == WantedChanges::All).then(|| Before::of(state, event));
        let position = state.apply(now, event).unwrap_or_else(|illegal| panic!("{illegal}: {event:?}"));
        let written = self.open.push(&self.scratch).unwrap_or_else(|full| panic!("{full:?}: {event:?}"));
        assert_eq!(written, position, "the ledger and the state count the same");
        self.notes.lines.extend(JournalLine::of(state, event));
        match (self.wanted, held) {
            (_, Some(before)) => self.changes.after(before, state, now, position, event),
            (WantedChanges::Created, None) => self.changes.created(event),
            (_, None) => {}
        }
    }

    /// The oldest batch that is not on its way yet, unless another is.
    pub(super) fn take(&mut self, state: &State) -> Option<Batch> {
        if self.notes_in_flight.is_some() {
            return None;
        }
        let (batch, notes) = match self.full.pop_front() {
            Some(full) => full,
            None if self.open.is_empty() => return None,
            None => self.close(state, state.time()),
        };
        self.notes_in_flight = Some(notes);
        Some(batch)
    }

    pub(super) fn durable(&mut self, batch: Batch) -> Notes {
        self.spare = Some(batch);
        self.notes_in_flight.take().unwrap_or_default()
    }

    /// Ends the open batch and begins another.
    fn close(&mut self, state: &State, now: Time) -> (Batch, Notes) {
        let first = self.open.next();
        let next = match self.spare.take() {
            Some(batch) => batch.into_builder(first),
            None => BatchBuilder::new(first),
        };
        let open = std::mem::replace(&mut self.open, next);
        let mut batch = open.finish(now.0);
        if self.wanted != WantedChanges::Nothing {
            self.changes.close(state);
            batch.set_changes(Some(std::mem::take(&mut self.changes)));
        }
        (batch, std::mem::take(&mut self.notes))
    }
}
