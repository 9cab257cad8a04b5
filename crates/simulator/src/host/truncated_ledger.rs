//! A ledger whose replay leaves out the last record: an injected bug.

use std::ops::ControlFlow;
use std::sync::Arc;

use authority::Position;
use ledger::file::FileLedger;
use ledger::{AppendError, Batch, Error, Ledger, Reader, Refusal, SnapshotError, SnapshotSink, Visit};

pub(super) struct TruncatedLedger<'a>(pub &'a FileLedger);

impl Ledger for TruncatedLedger<'_> {
    fn next(&self) -> Position {
        self.0.next()
    }

    fn append(&mut self, _batch: &Batch) -> Result<(), AppendError> {
        Err(Refusal::NoSpace.into())
    }

    fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError> {
        Ledger::begin_snapshot(self.0, begin)
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Ledger::reader(self.0)
    }

    fn replay(&self, from: Position, visit: &mut Visit<'_>) -> Result<(), Error> {
        Ledger::replay(self.0, from, &mut |position, record| {
            let is_last = position.next() == self.0.next();
            if is_last { ControlFlow::Break(()) } else { visit(position, record) }
        })
    }
}
