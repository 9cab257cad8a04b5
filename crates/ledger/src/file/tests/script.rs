//! Helpers of the tests: small settings, records that name their position, and what a disk holds.

use std::{ops::ControlFlow, sync::Arc};

use disk::Disk;
use fake_disk::FakeDisk;

use super::super::*;
use crate::Position;
pub(super) use crate::{
    AppendError, Batch, BatchBuilder, ClusterId, Damage, DiskSpace, ErrorKind, Ledger, Reader, Refusal,
    SnapshotError, SnapshotInfo, SnapshotSink, SnapshotSource,
};

pub(super) const CLUSTER: ClusterId = ClusterId(*b"a test's cluster");

/// Segments with room for six sectors of frames.
pub(super) const SEGMENT_BYTES: u64 = 8 * SECTOR_BYTES as u64;

pub(super) fn options() -> Options {
    Options { segment_bytes: SEGMENT_BYTES, create: Some(CLUSTER), min_free_bytes: 0, ..Options::default() }
}

pub(super) fn open(disk: &FakeDisk) -> Result<(FileLedger, OpenReport), Error> {
    open_with(disk, options())
}

pub(super) fn open_with(disk: &FakeDisk, options: Options) -> Result<(FileLedger, OpenReport), Error> {
    FileLedger::open(Arc::new(disk.clone()) as Arc<dyn Disk>, options)
}

/// The record that every test writes at a position: its length and its content follow from it.
pub(super) fn record(position: u64) -> Vec<u8> {
    let length = [20, 700, 3, 0, 460, 1200][position as usize % 6];
    let mut bytes = format!("record {position} ").into_bytes();
    // Long runs of zeros inside a record must not be taken for sectors that were never written.
    let filler = if position.is_multiple_of(5) { 0 } else { position as u8 };
    bytes.resize(length.max(bytes.len()), filler);
    bytes
}

pub(super) fn batch(first: Position, count: u64) -> Batch {
    let mut builder = BatchBuilder::new(first);
    for position in first.0..first.0 + count {
        builder.push(&record(position)).expect("small records fit");
    }
    builder.finish(first.0 * 1000)
}

pub(super) fn append(ledger: &mut FileLedger, count: u64) -> Result<(), AppendError> {
    ledger.append(&batch(ledger.next(), count))
}

/// Appends a batch and fails the test when that fails.
pub(super) fn must_append(ledger: &mut FileLedger, count: u64) {
    append(ledger, count).expect("nothing is wrong with the disk");
}

pub(super) fn reserve(ledger: &mut FileLedger) {
    if let Some(job) = ledger.reserve_job() {
        // The ledger knows whether it failed.
        let _ = job.run();
    }
}

/// Stores a snapshot whose blocks are the records up to the end.
pub(super) fn snapshot(ledger: &FileLedger) -> Result<SnapshotInfo, SnapshotError> {
    let end = Position(ledger.next().0 - 1);
    let mut writer = ledger.begin_snapshot(end)?;
    for position in 1..=end.0 {
        writer.write_block(&record(position))?;
    }
    writer.finish(end)
}

pub(super) fn snapshots(ledger: &FileLedger) -> Vec<SnapshotInfo> {
    ledger.reader().snapshots().expect("snapshots are known from the start")
}

/// The newest usable snapshot.
pub(super) fn load_snapshot(ledger: &FileLedger) -> Result<Option<Box<dyn SnapshotSource>>, Error> {
    snapshots(ledger).last().map(|info| ledger.reader().load_snapshot(info)).transpose().map_err(file_error)
}

/// The error of the file backend behind an error of a ledger.
pub(super) fn file_error(error: crate::Error) -> Error {
    match error.into_source().downcast() {
        Ok(error) => *error,
        Err(other) => panic!("{other} is no error of the file backend"),
    }
}

/// Replays to the end.
pub(super) fn replay(
    ledger: &FileLedger,
    from: Position,
    mut visit: impl FnMut(Position, &[u8]),
) -> Result<(), Error> {
    let replayed = ledger.replay(from, &mut |position, bytes| {
        visit(position, bytes);
        ControlFlow::Continue(())
    });
    replayed.map_err(file_error)
}

/// Reads a range of records.
pub(super) fn read(reader: &FileReader, from: u64, to: u64) -> Vec<(u64, Vec<u8>)> {
    let mut records = Vec::new();
    let read = reader.read(Position(from), Position(to), &mut |position, bytes| {
        records.push((position.0, bytes.to_vec()));
        ControlFlow::Continue(())
    });
    read.expect("sound");
    records
}

/// The records that snapshot and log give together, checked to be the right ones; the number of them.
pub(super) fn restore(ledger: &FileLedger) -> Result<u64, Error> {
    let mut count = 0;
    if let Some(mut reader) = load_snapshot(ledger)? {
        let mut block = Vec::new();
        while reader.next_block(&mut block).map_err(file_error)? {
            count += 1;
            assert_eq!(block, record(count), "block {count}");
        }
        assert_eq!(Position(count), reader.info().begin);
    }
    replay(ledger, Position(count + 1), |position, bytes| {
        count += 1;
        assert_eq!(position, Position(count), "positions have no gaps");
        assert_eq!(bytes, record(count), "record {count}");
    })?;
    assert_eq!(Position(count + 1), ledger.next());
    Ok(count)
}

/// Opens and restores: the number of records, or the refusal.
pub(super) fn recover(disk: &FakeDisk) -> Result<u64, Error> {
    let (ledger, report) = open(disk)?;
    assert_eq!(ledger.next(), report.next);
    restore(&ledger)
}

/// A disk on which `batches` were appended, one record more in each batch than in the one before, from 1.
pub(super) fn written(batches: u64) -> FakeDisk {
    let disk = FakeDisk::new();
    let (mut ledger, _) = open(&disk).expect("a new directory");
    for count in 1..=batches {
        must_append(&mut ledger, count);
    }
    disk
}

pub(super) fn segments(disk: &FakeDisk) -> Vec<String> {
    disk.names().into_iter().filter(|name| name.starts_with("segment-")).collect()
}

/// Changes a file in place, durably.
pub(super) fn edit(disk: &FakeDisk, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = disk.content(name).expect("the file exists");
    change(&mut bytes);
    disk.put(name, bytes);
}
