//! Decoders on arbitrary bytes: they never panic, and never read or allocate more than their input allows.

use std::sync::Arc;

use proptest::prelude::*;

use disk::Disk;
use fake_disk::FakeDisk;

use super::{
    super::{
        frame::{self, Header, Soundness},
        init::decode_identity,
        names::{self, Name},
        segment::{Seal, SegmentHeader},
        snapshot,
    },
    script::*,
};
use crate::{
    Position,
    batch::{MAX_BATCH_BYTES, RECORD_PREFIX_BYTES, split_body},
};

/// Arbitrary bytes after a true beginning, so that the checks behind the magic are reached.
fn after(magic: &'static [u8], length: usize) -> impl Strategy<Value = Vec<u8>> {
    (any::<bool>(), proptest::collection::vec(any::<u8>(), 0..length))
        .prop_map(move |(with_magic, bytes)| if with_magic { [magic, &bytes].concat() } else { bytes })
}

/// Makes the checksum over the first `at` bytes right, so that the checks behind it are reached.
fn with_crc(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    if bytes.len() >= at + 4 {
        let crc = crc32c::crc32c(&bytes[..at]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

fn decode_frame(bytes: &[u8]) {
    let Ok(header) = Header::decode(bytes) else { return };
    assert!(header.frame_bytes() <= frame::frame_bytes(MAX_BATCH_BYTES));
    let Some(frame) = bytes.get(..header.frame_bytes()) else { return };
    let _ = header.judge(frame);
    let mut body = Vec::new();
    header.unpack(frame, &mut body);
    assert!(body.len() <= frame.len());
    assert!(split_body(&body, header.count).count() <= header.count as usize + 1);
}

fn walk_snapshot(bytes: Vec<u8>) {
    let length = bytes.len();
    let disk = FakeDisk::new();
    disk.put("snapshot", bytes);
    let file = disk.open("snapshot").expect("it was put there");
    let _ = snapshot::verify(file, "snapshot", CLUSTER);
    assert!(disk.longest_read() <= length.max(snapshot::HEADER_BYTES));
}

/// A small sound snapshot file.
fn sound_snapshot() -> Vec<u8> {
    let disk = written(3);
    let (ledger, _) = open(&disk).expect("reopen");
    let info = snapshot(&ledger).expect("stored");
    disk.content(&info.name).expect("there")
}

proptest! {
    #[test]
    fn a_frame_decoder_survives_any_bytes(bytes in after(b"LFRM\x01\0\0\0", 2000)) {
        decode_frame(&bytes);
        decode_frame(&with_crc(bytes, 60));
    }

    #[test]
    fn records_of_any_body_stay_within_it(body in proptest::collection::vec(any::<u8>(), 0..600), count: u32) {
        let mut total = 0;
        for record in split_body(&body, count).flatten() {
            total += record.len() + RECORD_PREFIX_BYTES;
        }
        prop_assert!(total <= body.len());
    }

    #[test]
    fn a_sound_frame_gives_back_its_records(lengths in proptest::collection::vec(0..1500usize, 0..12), first in 1..u64::MAX / 2) {
        let records: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(i, n)| vec![i as u8; *n]).collect();
        let mut builder = BatchBuilder::new(Position(first));
        for record in &records {
            builder.push(record).expect("fits");
        }
        let mut bytes = b"left over".to_vec();
        let checksum = Header::encode(&builder.finish(5), 77, Position(first - 1), &mut bytes);
        let header = Header::decode(&bytes).expect("sound");
        prop_assert_eq!((header.first, header.checksum, header.chain, header.time_ms), (Position(first), checksum, 77, 5));
        prop_assert_eq!(header.frame_bytes(), bytes.len());
        prop_assert_eq!(header.judge(&bytes), Soundness::Sound);
        let mut body = Vec::new();
        header.unpack(&bytes, &mut body);
        let back: Option<Vec<_>> = split_body(&body, header.count).map(|r| r.map(<[u8]>::to_vec)).collect();
        prop_assert_eq!(back, Some(records));
    }

    #[test]
    fn segment_decoders_survive_any_bytes(bytes in after(b"LSEG\x01\0\0\0", 600), end in after(b"LEND\x01\0\0\0", 600)) {
        let _ = SegmentHeader::decode(&bytes);
        let _ = SegmentHeader::decode(&with_crc(bytes, 508));
        let _ = Seal::decode(&end);
        let _ = Seal::decode(&with_crc(end, 508));
    }

    #[test]
    fn an_identity_decoder_survives_any_bytes(bytes in after(b"LESSOR-L", 40)) {
        let _ = decode_identity(&bytes);
        let _ = decode_identity(&with_crc(bytes, 28));
    }

    #[test]
    fn names_are_what_they_were_written_as(name in "[ -~]{0,60}", begin: u64, end: u64) {
        let _ = Name::parse(&name);
        prop_assert_eq!(Name::parse(&names::segment(Position(begin))), Name::Segment(Position(begin)));
        let both = Name::Snapshot(Position(begin), Position(end));
        prop_assert_eq!(Name::parse(&names::snapshot(Position(begin), Position(end))), both);
    }

    #[test]
    fn a_snapshot_decoder_survives_any_bytes(bytes in after(b"LSNP\x01\0\0\0", 300)) {
        walk_snapshot(bytes.clone());
        walk_snapshot(with_crc(bytes, 36));
    }

    #[test]
    fn a_snapshot_decoder_survives_edits(edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..5), cut in any::<proptest::sample::Index>(), shorten: bool) {
        let mut bytes = sound_snapshot();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if shorten {
            bytes.truncate(cut.index(bytes.len()));
        }
        walk_snapshot(bytes);
    }

    /// The whole start, on a ledger whose files were edited, cut, or exchanged for noise.
    #[test]
    fn a_start_survives_any_edit(edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<proptest::sample::Index>(), any::<u8>()), 1..6), cut: Option<proptest::sample::Index>, drop_unverified_tail: bool) {
        let disk = written(4);
        let (ledger, _) = open(&disk).expect("reopen");
        snapshot(&ledger).expect("stored");
        drop(ledger);
        let names = disk.names();
        for (which, at, value) in edits {
            edit(&disk, &names[which.index(names.len())], |bytes| {
                let at = at.index(bytes.len());
                bytes[at] = value;
            });
        }
        if let Some(cut) = cut {
            edit(&disk, &names[cut.index(names.len())], |bytes| bytes.truncate(cut.index(bytes.len())));
        }
        let opened = super::super::FileLedger::open(
            Arc::new(disk.clone()) as Arc<dyn Disk>,
            super::super::Options { drop_unverified_tail, ..options() },
        );
        if let Ok((ledger, _)) = opened {
            // `restore` checks that every record is the one that was written.
            let _ = restore(&ledger);
        }
        prop_assert!(disk.longest_read() <= SEGMENT_BYTES as usize * 2);
    }
}

/// A length that a sound checksum vouches for is still checked against what is there.
#[test]
fn a_length_beyond_the_file_is_refused_before_anything_is_read_by_it() {
    let disk = written(1);
    let name = segments(&disk).pop().expect("one");
    edit(&disk, &name, |bytes| {
        bytes[512 + 36..][..4].copy_from_slice(&(8u32 << 20).to_le_bytes());
        let crc = crc32c::crc32c(&bytes[512..512 + 60]);
        bytes[512 + 60..][..4].copy_from_slice(&crc.to_le_bytes());
    });
    assert!(matches!(recover(&disk), Err(super::super::Error::Damaged(_))));
    assert!(disk.longest_read() <= SEGMENT_BYTES as usize);

    let mut bytes = sound_snapshot();
    let chain = crc32c::crc32c(&bytes[..36]);
    bytes[44..48].copy_from_slice(&(15u32 << 20).to_le_bytes());
    let crc = crc32c::crc32c_append(chain, &bytes[40..48]);
    bytes[48..52].copy_from_slice(&crc.to_le_bytes());
    walk_snapshot(bytes);
}
