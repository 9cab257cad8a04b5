//! A ledger that hides its last record from whoever replays it: an injected bug.

use std::ops::ControlFlow;

use authority::Position;
use ledger::file::{AppendError, Batch, Error, FileLedger, Refusal, SnapshotError};
use ledger::{Ledger, SnapshotSink, SnapshotSource};

pub struct OneShort<'a>(pub &'a FileLedger);

impl Ledger for OneShort<'_> {
    fn next(&self) -> Position {
        self.0.next()
    }

    fn append(&mut self, _batch: &mut Batch) -> Result<(), AppendError> {
        Err(Refusal::NoSpace.into())
    }

    fn read(
        &self,
        from: Position,
        visit: &mut dyn FnMut(Position, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        Ledger::read(self.0, from, &mut |position, record| match position.next() == self.0.next() {
            true => ControlFlow::Break(()),
            false => visit(position, record),
        })
    }

    fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError> {
        Ledger::begin_snapshot(self.0, begin)
    }

    fn load_snapshot(&self) -> Result<Option<Box<dyn SnapshotSource>>, Error> {
        Ledger::load_snapshot(self.0)
    }
}
