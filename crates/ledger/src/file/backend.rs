//! The file backend behind the traits that every storage backend implements.

use std::{ops::ControlFlow, path::Path, sync::Arc, sync::atomic::Ordering};

use authority::Time;

use super::{
    error::{Error, ReplayError},
    hold::FileHold,
    inspect::Inspection,
    ledger::FileLedger,
    offsets::OffsetFiles,
    open::OpenReport,
    options::Options,
    reader::FileReader,
    snapshot_reader::SnapshotReader,
    snapshot_writer::SnapshotWriter,
    trim::TrimJob,
};
use crate::{
    AppendError, Batch, DiskSpace, Error as LedgerError, Hold, Job, Ledger, Position, Reader, SnapshotError,
    SnapshotInfo, SnapshotSink, SnapshotSource, Storage, Visit,
};

const END: Position = Position(u64::MAX);

/// Opens the ledger and the projection offsets in a data directory.
pub fn open_data_dir(data: &Path, options: Options) -> Result<(Storage, OpenReport), Error> {
    let (ledger, report) = FileLedger::open_dir(&data.join("ledger"), options)?;
    // Projections were once called effects.
    let offsets = OffsetFiles::open_dir(&data.join("effects"))?;
    Ok((Storage { ledger: Box::new(ledger), offsets: Arc::new(offsets) }, report))
}

impl Ledger for FileLedger {
    fn next(&self) -> Position {
        FileLedger::next(self)
    }

    fn append(&mut self, batch: &Batch) -> Result<(), AppendError> {
        FileLedger::append(self, batch)
    }

    fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError> {
        Ok(Box::new(FileLedger::begin_snapshot(self, begin)?))
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(FileLedger::reader(self))
    }

    fn replay(&self, from: Position, visit: &mut Visit<'_>) -> Result<(), LedgerError> {
        let visited = FileLedger::replay(self, from, |position, record| match visit(position, record) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(()),
        });
        match visited {
            Ok(()) | Err(ReplayError::Visit(..)) => Ok(()),
            Err(ReplayError::Ledger(error)) => Err(error.into()),
        }
    }

    fn space(&self) -> DiskSpace {
        FileLedger::space(self)
    }

    fn is_space_known(&self) -> bool {
        FileLedger::is_space_known(self)
    }

    fn tend(&mut self, now: Time) -> Option<Job> {
        if let Some(job) = self.reserve_job() {
            // The job logs a failure, and the ledger's space shows it.
            return Some(Job::new("lessor-reserve", move || drop(job.run())));
        }
        if !self.shared.trim_due.swap(false, Ordering::AcqRel) {
            return None;
        }
        let job = self.trim_job(now.0)?;
        Some(Job::new("lessor-trim", move || trim(job)))
    }
}

fn trim(job: TrimJob) {
    match job.run() {
        Ok(files) => tracing::info!(files, "old history removed"),
        Err(fault) => tracing::error!(%fault, "old history could not be removed"),
    }
}

impl Reader for FileReader {
    fn first(&self) -> Result<Position, LedgerError> {
        Ok(FileReader::first(self))
    }

    fn next(&self) -> Result<Position, LedgerError> {
        Ok(FileReader::next(self))
    }

    fn record(&self, position: Position) -> Result<Option<Vec<u8>>, LedgerError> {
        Ok(self.read_record(position)?)
    }

    fn read(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<(), LedgerError> {
        let to = to.min(Position(FileReader::next(self).0 - 1));
        if from > to {
            return Ok(());
        }
        let records = self.read_from(from, to)?;
        let records = records.ok_or_else(|| LedgerError::trimmed(from, FileReader::first(self)))?;
        for read in records {
            let (position, record) = read?;
            if visit(position, &record).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn snapshots(&self) -> Result<Vec<SnapshotInfo>, LedgerError> {
        Ok(FileReader::snapshots(self))
    }

    fn load_snapshot(&self, info: &SnapshotInfo) -> Result<Box<dyn SnapshotSource>, LedgerError> {
        Ok(Box::new(self.open_snapshot(info)?))
    }

    fn hold(&self, _name: &str, from: Position) -> Result<Box<dyn Hold>, LedgerError> {
        Ok(Box::new(FileReader::hold(self, from)))
    }
}

impl Reader for Inspection {
    fn first(&self) -> Result<Position, LedgerError> {
        Ok(Inspection::first(self))
    }

    fn next(&self) -> Result<Position, LedgerError> {
        let newest = self.segments().last().map_or(Position(1), |segment| segment.first);
        Ok(Inspection::read(self, newest, END, &mut |_, _| ControlFlow::Continue(()))?.next)
    }

    fn record(&self, position: Position) -> Result<Option<Vec<u8>>, LedgerError> {
        if position < Inspection::first(self) {
            return Ok(None);
        }
        let mut found = None;
        Inspection::read(self, position, position, &mut |_, record| {
            found = Some(record.to_vec());
            ControlFlow::Break(())
        })?;
        found.map(Some).ok_or_else(|| Error::BeyondEnd(position).into())
    }

    fn read(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<(), LedgerError> {
        if from < Inspection::first(self) {
            return Err(LedgerError::trimmed(from, Inspection::first(self)));
        }
        Inspection::read(self, from, to, visit)?;
        Ok(())
    }

    /// Time never falls, so every record before a segment that was begun earlier was made earlier too.
    fn seek(&self, time: Time) -> Result<Position, LedgerError> {
        let earlier = self.segments().take_while(|segment| segment.time_ms < time.0);
        Ok(earlier.last().map_or(Inspection::first(self), |segment| segment.first))
    }

    /// All snapshots by their names, usable or not.
    fn snapshots(&self) -> Result<Vec<SnapshotInfo>, LedgerError> {
        Ok(Inspection::snapshots(self).cloned().collect())
    }

    fn load_snapshot(&self, info: &SnapshotInfo) -> Result<Box<dyn SnapshotSource>, LedgerError> {
        Ok(Box::new(self.snapshot(info)?))
    }

    /// An inspection keeps its files open, so nothing has to be held.
    fn hold(&self, _name: &str, from: Position) -> Result<Box<dyn Hold>, LedgerError> {
        Ok(Box::new(FileHold::new(from)))
    }
}

impl Hold for FileHold {
    fn advance(&self, from: Position) -> Result<(), LedgerError> {
        FileHold::advance(self, from);
        Ok(())
    }
}

impl SnapshotSink for SnapshotWriter {
    fn write_block(&mut self, block: &[u8]) -> Result<(), SnapshotError> {
        SnapshotWriter::write_block(self, block)
    }

    fn finish(self: Box<Self>, end: Position) -> Result<(), SnapshotError> {
        SnapshotWriter::finish(*self, end).map(drop)
    }
}

impl SnapshotSource for SnapshotReader {
    fn begin(&self) -> Position {
        SnapshotReader::begin(self)
    }

    fn end(&self) -> Position {
        SnapshotReader::end(self)
    }

    fn next_block(&mut self, block: &mut Vec<u8>) -> Result<bool, LedgerError> {
        Ok(SnapshotReader::next_block(self, block)?)
    }
}
