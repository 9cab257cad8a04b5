//! The files of the ledger, and what is in them.

use std::sync::Arc;

use authority::{Event, Position, Time, event};
use fake_disk::FakeDisk;
use ledger::file::{FileLedger, Options, SECTOR_BYTES};
use ledger::record::snapshot::{self, BlockDecoder};
use ledger::{BatchBuilder, ClusterId, Ledger, Recovery};

const SEGMENT_BYTES: u64 = 16 << 10;

pub(crate) fn record(input: &[u8]) {
    if let Ok(record) = ledger::record::decode(input) {
        let mut encoded = Vec::new();
        record.encode(&mut encoded);
        assert_eq!(
            ledger::record::decode(&encoded),
            Ok(record),
            "what was read can be written and read again"
        );
    }
}

pub(crate) fn records() -> Vec<Vec<u8>> {
    (1..=3).map(encoded_record).collect()
}

pub(crate) fn block(input: &[u8]) {
    let _ = BlockDecoder::default().entries(input).count();
}

pub(crate) fn blocks() -> Vec<Vec<u8>> {
    vec![encoded_block()]
}

/// Opens a ledger whose first segment has these bytes behind its header, and replays it.
pub(crate) fn segment(input: &[u8]) {
    let disk = written();
    let name = first_segment(&disk);
    let mut bytes = disk.content(&name).unwrap_or_default();
    let room = bytes.len() - SECTOR_BYTES;
    let used = input.len().min(room);
    bytes[SECTOR_BYTES..][..used].copy_from_slice(&input[..used]);
    bytes[SECTOR_BYTES + used..].fill(0);
    disk.put(&name, bytes);
    open_and_recover(&disk);
}

pub(crate) fn segments() -> Vec<Vec<u8>> {
    let disk = written();
    let bytes = disk.content(&first_segment(&disk)).unwrap_or_default();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    vec![bytes[SECTOR_BYTES..(end + 1).next_multiple_of(SECTOR_BYTES)].to_vec()]
}

/// Opens a ledger whose snapshot has this content.
pub(crate) fn snapshot(input: &[u8]) {
    let disk = written();
    disk.put(&snapshot_name(&disk), input.to_vec());
    open_and_recover(&disk);
}

pub(crate) fn snapshots() -> Vec<Vec<u8>> {
    let disk = written();
    vec![disk.content(&snapshot_name(&disk)).unwrap_or_default()]
}

fn encoded_record(position: u64) -> Vec<u8> {
    let key_id = Arc::from(format!("k{position}.1"));
    let event = Event::TokenKeyRotated(event::TokenKeyRotated { key_id, by: None });
    let mut bytes = Vec::new();
    ledger::record::encode(Time(position), None, &event, &mut bytes);
    bytes
}

fn encoded_block() -> Vec<u8> {
    let mut block = Vec::new();
    snapshot::encode_header(Position(2), Time(2), &mut block);
    let key = authority::TokenKey { id: Arc::from("k2.1"), since: Position(2) };
    snapshot::encode_token_key(&key, &mut block);
    block
}

/// A disk with a ledger of three records and a snapshot of the first two.
fn written() -> FakeDisk {
    let disk = FakeDisk::new();
    let Some(mut ledger) = open(&disk) else { return disk };
    for position in 1..=3 {
        let mut batch = BatchBuilder::new(Position(position));
        let pushed = batch.push(&encoded_record(position));
        assert!(pushed.is_ok() && ledger.append(&batch.finish(position)).is_ok(), "the disk takes it");
    }
    let stored = ledger.begin_snapshot(Position(2)).and_then(|mut sink| {
        sink.write_block(&encoded_block())?;
        sink.finish(Position(2))
    });
    assert!(stored.is_ok(), "the disk takes it");
    disk
}

fn open(disk: &FakeDisk) -> Option<FileLedger> {
    let create = Some(ClusterId([1; 16]));
    let options = Options { segment_bytes: SEGMENT_BYTES, create, ..Options::default() };
    FileLedger::open(Arc::new(disk.clone()), options).ok().map(|(ledger, _)| ledger)
}

fn open_and_recover(disk: &FakeDisk) {
    if let Some(ledger) = open(disk) {
        let _ = Recovery::newest(&ledger);
    }
}

fn first_segment(disk: &FakeDisk) -> String {
    named(disk, "segment-")
}

fn snapshot_name(disk: &FakeDisk) -> String {
    named(disk, "snapshot-")
}

fn named(disk: &FakeDisk, prefix: &str) -> String {
    disk.names().into_iter().find(|name| name.starts_with(prefix)).unwrap_or_default()
}
