//! What a home for the ledger must do, whatever it is made of.

use std::ops::ControlFlow;

use crate::{
    Position,
    file::{
        AppendError, Batch, Error, FileLedger, ReplayError, SnapshotError, SnapshotReader, SnapshotWriter,
    },
};

/// An append-only log of records at consecutive positions, with one writer at a time.
pub trait Ledger: Send {
    /// The position that the next batch must start with.
    fn next(&self) -> Position;

    /// Makes a batch durable at exactly the position it was built for, or refuses it as fenced when that
    /// position is taken.
    fn append(&mut self, batch: &mut Batch) -> Result<(), AppendError>;

    /// Calls `visit` with every durable record at or after `from`, in order, until it breaks.
    fn read(
        &self,
        from: Position,
        visit: &mut dyn FnMut(Position, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error>;

    /// Starts a snapshot that holds at least the effects of every record up to `begin`.
    fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError>;

    /// The newest usable snapshot, if there is one.
    fn load_snapshot(&self) -> Result<Option<Box<dyn SnapshotSource>>, Error>;
}

/// A snapshot that is being stored. Dropping it abandons it.
pub trait SnapshotSink: Send {
    fn write_block(&mut self, block: &[u8]) -> Result<(), SnapshotError>;
    /// `end` is the last position whose effect any block may hold.
    fn finish(self: Box<Self>, end: Position) -> Result<(), SnapshotError>;
}

/// A snapshot that is being loaded.
pub trait SnapshotSource: Send {
    /// Replay continues after this position.
    fn begin(&self) -> Position;
    fn end(&self) -> Position;
    /// Reads the next block into `block`; `false` after the last.
    fn next_block(&mut self, block: &mut Vec<u8>) -> Result<bool, Error>;
}

impl Ledger for FileLedger {
    fn next(&self) -> Position {
        FileLedger::next(self)
    }

    fn append(&mut self, batch: &mut Batch) -> Result<(), AppendError> {
        FileLedger::append(self, batch)
    }

    fn read(
        &self,
        from: Position,
        visit: &mut dyn FnMut(Position, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let visited = self.replay(from, |position, record| match visit(position, record) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(()),
        });
        match visited {
            Ok(()) | Err(ReplayError::Visit(..)) => Ok(()),
            Err(ReplayError::Ledger(error)) => Err(error),
        }
    }

    fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError> {
        Ok(Box::new(FileLedger::begin_snapshot(self, begin)?))
    }

    fn load_snapshot(&self) -> Result<Option<Box<dyn SnapshotSource>>, Error> {
        Ok(FileLedger::load_snapshot(self)?.map(|reader| Box::new(reader) as Box<dyn SnapshotSource>))
    }
}

impl SnapshotSink for SnapshotWriter {
    fn write_block(&mut self, block: &[u8]) -> Result<(), SnapshotError> {
        SnapshotWriter::write_block(self, block)
    }

    fn finish(self: Box<Self>, end: Position) -> Result<(), SnapshotError> {
        SnapshotWriter::finish(*self, end).map(|_| ())
    }
}

impl SnapshotSource for SnapshotReader {
    fn begin(&self) -> Position {
        SnapshotReader::begin(self)
    }

    fn end(&self) -> Position {
        SnapshotReader::end(self)
    }

    fn next_block(&mut self, block: &mut Vec<u8>) -> Result<bool, Error> {
        SnapshotReader::next_block(self, block)
    }
}
