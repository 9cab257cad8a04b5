//! A projection with its durable offset. The runner has no thread and no clock, so that production and a simulator
//! drive the same code.
//!
//! The projection gets every durable record, in order and at least once: the offset is saved only after every record up
//! to it is applied, and history after the saved offset is not trimmed.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use authority::{Position, State};
use ledger::{Error, HistoryRecord, Hold, ProjectionOffsets, Reader, record};

use crate::history::LedgerHistory;
use crate::projection::Projection;
use crate::rules;

/// The offset is saved at least this often while catching up. Seldom, because a save takes two syncs, and applying so
/// many records again takes a tenth of a second.
const SAVE_AFTER_RECORDS: u64 = 100_000;

pub struct ProjectionRunner {
    projection: Box<dyn Projection>,
    reader: Arc<dyn Reader>,
    history: LedgerHistory,
    /// None for a projection that begins with the state of every start.
    offsets: Option<Arc<dyn ProjectionOffsets>>,
    /// The epoch of the owner that runs the projection.
    epoch: u64,
    applied_up_to: Position,
    /// The offset that a start would find.
    saved: Position,
    hold: Box<dyn Hold>,
    /// Set when another owner continues the projection.
    stop: Arc<AtomicBool>,
}

impl ProjectionRunner {
    /// Continues after the saved offset. A projection without one begins with the oldest record that is kept, and so does
    /// a projection that is ahead of the ledger: the ledger was restored from an older copy, and other records will take
    /// the positions of the lost ones.
    pub fn open(
        projection: Box<dyn Projection>,
        offsets: Arc<dyn ProjectionOffsets>,
        epoch: u64,
        reader: Arc<dyn Reader>,
    ) -> Result<ProjectionRunner, Error> {
        let name = projection.name();
        let (oldest, next) = (Position(reader.first()?.0.saturating_sub(1)), reader.next()?);
        let saved = match offsets.load(name)? {
            Some(saved) if saved < next => saved,
            Some(ahead) => {
                tracing::warn!(
                    projection = name,
                    applied_up_to = ahead.0,
                    ledger_ends_before = next.0,
                    "a projection is ahead of the ledger, which was restored from an older copy; the projection is rebuilt"
                );
                // Before the ledger grows past the lost offset.
                offsets.save(name, oldest, epoch)?;
                oldest
            }
            None => oldest,
        };
        ProjectionRunner::after(projection, Some(offsets), epoch, reader, saved)
    }

    /// Opens a projection at a start, with the state that was found. A projection that begins with this state needs no offset.
    pub(crate) fn open_with(
        mut projection: Box<dyn Projection>,
        offsets: Arc<dyn ProjectionOffsets>,
        epoch: u64,
        reader: Arc<dyn Reader>,
        state: &State,
    ) -> Result<ProjectionRunner, Error> {
        if projection.begin(state, &LedgerHistory::new(reader.clone())) {
            ProjectionRunner::after(projection, None, epoch, reader, state.position())
        } else {
            ProjectionRunner::open(projection, offsets, epoch, reader)
        }
    }

    fn after(
        projection: Box<dyn Projection>,
        offsets: Option<Arc<dyn ProjectionOffsets>>,
        epoch: u64,
        reader: Arc<dyn Reader>,
        saved: Position,
    ) -> Result<ProjectionRunner, Error> {
        let hold = reader.hold(projection.name(), saved.next())?;
        let history = LedgerHistory::new(reader.clone());
        Ok(ProjectionRunner {
            projection,
            reader,
            history,
            offsets,
            epoch,
            applied_up_to: saved,
            saved,
            hold,
            stop: Arc::default(),
        })
    }

    /// Lets the runner end with the record that it is applying, once this is set.
    pub(crate) fn stopped_by(self, stop: Arc<AtomicBool>) -> ProjectionRunner {
        ProjectionRunner { stop, ..self }
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub fn name(&self) -> &str {
        self.projection.name()
    }

    pub fn applied_up_to(&self) -> Position {
        self.applied_up_to
    }

    pub fn is_saved(&self) -> bool {
        self.applied_up_to == self.saved
    }

    /// Applies every record up to `target` that is not applied yet. After an error the next call starts with the record
    /// that failed.
    pub fn catch_up(&mut self, target: Position) -> Result<(), String> {
        if self.applied_up_to >= target {
            return Ok(());
        }
        let reader = self.reader.clone();
        let mut applied = Ok(());
        let read = reader.read(self.applied_up_to.next(), target, &mut |position, bytes| {
            applied = self.apply(position, bytes);
            if applied.is_ok() && !self.is_stopped() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        read.map_err(|error| error.to_string())?;
        applied
    }

    fn apply(&mut self, position: Position, bytes: &[u8]) -> Result<(), String> {
        let decoded = record::decode(bytes).map_err(|error| error.to_string())?;
        let record = HistoryRecord { position, at: decoded.at, event: decoded.event };
        rules::projection_outcome(self.projection.apply(&record, &self.history))?;
        self.applied_up_to = position;
        if position.0 - self.saved.0 >= SAVE_AFTER_RECORDS {
            self.save().map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Makes the offset durable. The caller saves when there is nothing else to do; after a crash the projection gets
    /// the records after the saved offset again.
    pub fn save(&mut self) -> Result<(), Error> {
        if !self.is_saved() {
            if let Some(offsets) = &self.offsets {
                offsets.save(self.projection.name(), self.applied_up_to, self.epoch)?;
            }
            self.saved = self.applied_up_to;
            self.hold.advance(self.saved.next())?;
        }
        Ok(())
    }
}
