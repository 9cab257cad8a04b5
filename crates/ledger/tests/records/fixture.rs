//! The released formats. These files are never written again: what a version wrote must stay readable (P12).

use std::collections::BTreeSet;

use ledger::record::snapshot::{self, BlockDecoder, SnapshotEntry};
use ledger::record::{Record, decode};

use crate::samples;

/// Records, each with its length before it.
const RECORDS_V1: &[u8] = include_bytes!("../fixtures/records-v1.bin");
const RECORDS_V2: &[u8] = include_bytes!("../fixtures/records-v2.bin");
const RECORDS_V3: &[u8] = include_bytes!("../fixtures/records-v3.bin");
const RECORDS_V4: &[u8] = include_bytes!("../fixtures/records-v4.bin");
/// One block of snapshot entries.
const SNAPSHOT_V1: &[u8] = include_bytes!("../fixtures/snapshot-v1.bin");
const SNAPSHOT_V2: &[u8] = include_bytes!("../fixtures/snapshot-v2.bin");
const SNAPSHOT_V3: &[u8] = include_bytes!("../fixtures/snapshot-v3.bin");
const SNAPSHOT_V4: &[u8] = include_bytes!("../fixtures/snapshot-v4.bin");
/// The kinds of events up to version 3, and today's.
const OLD_EVENT_KINDS: usize = 17;
const EVENT_KINDS: usize = 19;

#[test]
fn p12_records_of_version_1_decode_and_encode_to_the_same_bytes() {
    assert_reads_and_writes(RECORDS_V1, &samples::records_v1(), OLD_EVENT_KINDS);
}

#[test]
fn p12_records_of_version_2_decode_and_encode_to_the_same_bytes() {
    assert_reads_and_writes(RECORDS_V2, &samples::records_v2(), OLD_EVENT_KINDS);
}

#[test]
fn p12_records_of_version_3_decode_and_encode_to_the_same_bytes() {
    assert_reads_and_writes(RECORDS_V3, &samples::records_v3(), OLD_EVENT_KINDS);
}

#[test]
fn p12_records_of_version_4_decode_and_encode_to_the_same_bytes() {
    assert_reads_and_writes(RECORDS_V4, &samples::records(), EVENT_KINDS);
}

#[test]
fn p12_snapshot_entries_of_version_1_decode_and_encode_to_the_same_bytes() {
    assert_reads_old_entries(SNAPSHOT_V1, &samples::entries_v1());
}

#[test]
fn p12_snapshot_entries_of_version_2_decode_and_encode_to_the_same_bytes() {
    assert_reads_old_entries(SNAPSHOT_V2, &samples::entries_v2());
}

#[test]
fn p12_snapshot_entries_of_version_3_decode_and_encode_to_the_same_bytes() {
    assert_reads_old_entries(SNAPSHOT_V3, &samples::entries_v3());
}

#[test]
fn p12_snapshot_entries_of_version_4_decode_and_encode_to_the_same_bytes() {
    let decoded: Result<Vec<_>, _> = BlockDecoder::default().entries(SNAPSHOT_V4).collect();
    let decoded = decoded.expect("version 4 is readable");
    assert_eq!(decoded, samples::entries());
    assert_eq!(block_of(&decoded), SNAPSHOT_V4);
}

fn assert_reads_old_entries(fixture: &[u8], expected: &[SnapshotEntry]) {
    let decoded: Result<Vec<_>, _> = BlockDecoder::default().entries(fixture).collect();
    let decoded = decoded.expect("a released version is readable");
    assert_eq!(decoded, expected);
    // The header is written with the newest version; what follows it has not changed.
    let after_the_header = block_of(&decoded[1..]);
    assert!(fixture.ends_with(&after_the_header));
}

fn assert_reads_and_writes(fixture: &[u8], expected: &[Record], event_kinds: usize) {
    let (mut rest, mut decoded, mut again) = (fixture, Vec::new(), Vec::new());
    while !rest.is_empty() {
        let length = prost::decode_length_delimiter(&mut rest).expect("the fixture has lengths");
        let (bytes, after) = rest.split_at(length);
        let record = decode(bytes).expect("a released version is readable");
        prost::encode_length_delimiter(length, &mut again).expect("a vector grows");
        record.encode(&mut again);
        decoded.push(record);
        rest = after;
    }
    assert_eq!(decoded, expected);
    assert_eq!(again, fixture);
    let kinds: BTreeSet<_> = decoded.iter().map(|record| record.event.name()).collect();
    assert_eq!(kinds.len(), event_kinds, "the fixture has one record of each kind");
}

pub(crate) fn block_of(entries: &[SnapshotEntry]) -> Vec<u8> {
    let mut block = Vec::new();
    for entry in entries {
        match entry {
            SnapshotEntry::Header { begin, time, .. } => snapshot::encode_header(*begin, *time, &mut block),
            SnapshotEntry::Task { queue, task } => snapshot::encode_task(queue, task, &mut block),
            SnapshotEntry::Queue { key, config, configured } => {
                snapshot::encode_queue(key, config, *configured, &mut block);
            }
            SnapshotEntry::Owner(owner) => snapshot::encode_owner(owner, &mut block),
            SnapshotEntry::TokenKey(key) => snapshot::encode_token_key(key, &mut block),
            SnapshotEntry::Key(key) => snapshot::encode_key(key, &mut block),
        }
    }
    block
}
