//! One test for each row of the disk fault table that a start meets: D7–D16, D19, D20, D25; and every bit
//! of a small ledger, flipped.

use fake_disk::{Errno, FakeDisk, Fate};

use super::{super::*, script::*};
use crate::Position;

const SECTOR: usize = SECTOR_BYTES;

fn damage(result: Result<u64, Error>) -> Damage {
    match result {
        Err(Error::Damaged(damage)) => damage,
        other => panic!("{other:?} is not a refusal for damage"),
    }
}

fn last_segment(disk: &FakeDisk) -> String {
    segments(disk).pop().expect("there is always one")
}

/// Three records are durable; a frame of twenty sectors with the fourth is written, but not synced.
fn long_unsynced_frame() -> FakeDisk {
    let disk = FakeDisk::new();
    let (mut ledger, _) = open_with(&disk, Options { segment_bytes: 64 << 10, ..options() }).expect("new");
    must_append(&mut ledger, 3);
    disk.heal();
    disk.fail_at(1, Errno::Io);
    let mut builder = BatchBuilder::new(Position(4));
    builder.push(&vec![0; 448 + 19 * 508 - 4]).expect("fits");
    ledger.append(&builder.finish(0)).expect_err("the sync fails");
    disk
}

#[test]
fn d7_a_frame_torn_at_any_sector_or_page_is_dropped() {
    let disk = long_unsynced_frame();
    for kept in 0..20 {
        let crashed = disk.crash(&[Fate::Torn((1 << kept) - 1)]);
        let (ledger, report) = open(&crashed).expect("a torn frame is no damage");
        assert_eq!(restore(&ledger).expect("sound"), 3);
        let dropped = report.dropped.map(|dropped| (dropped.first, dropped.bytes, dropped.why));
        let expected = (kept > 0).then_some((Position(4), kept * 512, DropReason::Torn));
        assert_eq!(dropped, expected);
    }
    let (_, report) = open(&disk.crash(&[Fate::Kept])).expect("a whole frame has happened");
    assert_eq!((report.next, report.dropped), (Position(5), None));
}

#[test]
fn d8_a_frame_whose_pages_came_in_any_order_is_torn() {
    let disk = long_unsynced_frame();
    for lost in 0..20 {
        for pages in [!(1 << lost), !(0xff << lost), 0xff << lost, 1 << lost] {
            if pages & 0xf_ffff != 0xf_ffff {
                assert_eq!(recover(&disk.crash(&[Fate::Torn(pages)])).expect("torn"), 3, "{pages:b}");
            }
        }
    }
}

#[test]
fn d9_a_flipped_bit_in_an_acknowledged_frame_is_refused_with_its_position() {
    let disk = written(2);
    let name = last_segment(&disk);
    // Position 1 is in the frame at byte 512, positions 2 and 3 in the frame after it.
    edit(&disk, &name, |bytes| bytes[512 + 200] ^= 4);
    let damage = damage(recover(&disk));
    assert_eq!((damage.file, damage.offset, damage.from), (name, 512, Position(1)));
    assert_eq!(damage.to, Some(Position(1)));
}

#[test]
fn d9_a_flipped_bit_in_the_last_frame_is_refused_unless_the_operator_drops_it() {
    let disk = written(2);
    let name = last_segment(&disk);
    edit(&disk, &name, |bytes| bytes[3 * SECTOR + 100] ^= 1);
    let Err(Error::UnverifiedTail(damage)) = open(&disk) else { panic!("it may have been acknowledged") };
    assert_eq!((damage.offset, damage.from), (3 * SECTOR as u64, Position(2)));
    let brave = Options { drop_unverified_tail: true, ..options() };
    let (ledger, report) = open_with(&disk, brave).expect("the operator wants it");
    assert_eq!(report.dropped.map(|dropped| dropped.why), Some(DropReason::Unverified));
    assert_eq!(restore(&ledger).expect("sound"), 1);
}

#[test]
fn d9_an_unverified_frame_with_a_later_one_is_never_dropped() {
    let disk = written(2);
    edit(&disk, &last_segment(&disk), |bytes| bytes[512 + 200] ^= 4);
    let brave = Options { drop_unverified_tail: true, ..options() };
    assert!(matches!(open_with(&disk, brave), Err(Error::Damaged(_))));
}

#[test]
fn d9_a_blank_sector_in_a_frame_with_a_later_one_is_damage() {
    let disk = written(2);
    edit(&disk, &last_segment(&disk), |bytes| bytes[512..1024].fill(0));
    assert_eq!(damage(recover(&disk)).from, Position(1));
}

#[test]
fn d10_a_flipped_bit_in_a_frame_header_is_refused_without_reading_by_it() {
    for byte in 0..64 {
        for bit in 0..8 {
            let disk = written(2);
            edit(&disk, &last_segment(&disk), |bytes| bytes[512 + byte] ^= 1 << bit);
            assert_eq!(damage(recover(&disk)).from, Position(1), "byte {byte} bit {bit}");
            assert!(disk.longest_read() <= SEGMENT_BYTES as usize);
        }
    }
}

fn with_two_snapshots() -> FakeDisk {
    let disk = written(3);
    let (mut ledger, _) = open(&disk).expect("reopen");
    snapshot(&ledger).expect("stored");
    must_append(&mut ledger, 3);
    snapshot(&ledger).expect("stored");
    must_append(&mut ledger, 1);
    disk
}

fn snapshot_files(disk: &FakeDisk) -> Vec<String> {
    disk.names().into_iter().filter(|name| name.starts_with("snapshot-")).collect()
}

#[test]
fn d11_a_bad_newest_snapshot_is_kept_and_the_older_one_used() {
    let disk = with_two_snapshots();
    let newest = snapshot_files(&disk).pop().expect("two");
    edit(&disk, &newest, |bytes| bytes[1000] ^= 1);
    let (ledger, report) = open(&disk).expect("the older one and the log are complete");
    assert_eq!(report.bad_snapshots.iter().map(|bad| &bad.0).collect::<Vec<_>>(), [&newest]);
    let used = load_snapshot(&ledger).expect("sound").map(|reader| reader.info().end);
    assert_eq!(used, Some(Position(6)));
    assert_eq!(restore(&ledger).expect("sound"), 10);
    assert!(snapshot_files(&disk).contains(&newest), "evidence is kept");
    assert!(ledger.trim_job(u64::MAX).is_none(), "a bad snapshot covers nothing");
}

#[test]
fn d12_two_bad_snapshots_of_a_trimmed_log_are_refused() {
    let disk = with_two_snapshots();
    let (ledger, _) = open(&disk).expect("reopen");
    ledger.trim_job(u64::MAX).expect("history is old").run().expect("nothing is wrong");
    drop(ledger);
    assert_eq!(recover(&disk).expect("trimmed"), 10);
    for name in snapshot_files(&disk) {
        edit(&disk, &name, |bytes| bytes[300] ^= 1);
    }
    let damage = damage(open(&disk).map(|_| 0));
    assert_eq!((damage.from, damage.to.is_some()), (Position(1), true));
}

#[test]
fn d13_a_segment_missing_in_the_middle_is_refused() {
    let names = segments(&written(6));
    assert!(names.len() >= 4);
    for name in &names[1..names.len() - 1] {
        let disk = written(6);
        disk.lose(name);
        assert_eq!(damage(recover(&disk)).what, "the segment before this one is missing");
    }
    let disk = written(6);
    disk.lose(&names[0]);
    assert_eq!(damage(recover(&disk)).from, Position(1), "no snapshot stands for the first segment");
}

#[test]
fn d14_a_missing_last_segment_is_noticed_by_the_one_before() {
    let disk = written(6);
    disk.lose(&last_segment(&disk));
    assert_eq!(damage(recover(&disk)).what, "the segment is sealed, but the one that follows it is missing");
}

#[test]
fn d14_a_missing_last_segment_is_noticed_by_a_snapshot() {
    let disk = with_two_snapshots();
    // Position 10 alone is in the last segment; the snapshot ends at 9.
    disk.lose(&last_segment(&disk));
    disk.lose(&last_segment(&disk));
    // Take the seal away too, as if it had never reached the disk.
    edit(&disk, &last_segment(&disk), |bytes| {
        let at = bytes.len() - SECTOR;
        bytes[at..].fill(0);
    });
    assert_eq!(damage(recover(&disk)).to, Some(Position(9)));
}

#[test]
fn d14_every_segment_missing_is_refused() {
    let disk = written(3);
    for name in segments(&disk) {
        disk.lose(&name);
    }
    assert_eq!(damage(recover(&disk)).what, "every segment is missing");
}

#[test]
fn d15_a_stale_frame_behind_the_tail_is_ignored() {
    let disk = written(2);
    let name = last_segment(&disk);
    // The frame of position 1 stands again behind the frame of positions 2 and 3.
    edit(&disk, &name, |bytes| bytes.copy_within(512..1536, 4 * SECTOR));
    let (ledger, report) = open(&disk).expect("not a continuation");
    assert_eq!(report.dropped.map(|dropped| dropped.why), Some(DropReason::Stale));
    assert_eq!(restore(&ledger).expect("sound"), 3);
}

#[test]
fn d16_a_frame_at_the_wrong_place_is_refused() {
    let disk = written(2);
    let name = last_segment(&disk);
    // The frame of positions 2 and 3 stands one sector too far, and its place is blank.
    edit(&disk, &name, |bytes| {
        bytes.copy_within(3 * SECTOR..4 * SECTOR, 4 * SECTOR);
        bytes[3 * SECTOR..4 * SECTOR].fill(0);
    });
    assert_eq!(damage(recover(&disk)).from, Position(2));
    // It stands where the frame of position 1 should be.
    let disk = written(2);
    edit(&disk, &name, |bytes| bytes.copy_within(3 * SECTOR..4 * SECTOR, 512));
    assert_eq!(damage(recover(&disk)).what, "a frame of a later position stands here");
}

#[test]
fn d16_a_frame_of_another_history_is_refused() {
    let disk = written(1);
    let other = FakeDisk::new();
    let stranger = Options { create: Some(ClusterId([7; 16])), ..options() };
    let (mut ledger, _) = open_with(&other, stranger).expect("new");
    must_append(&mut ledger, 1);
    must_append(&mut ledger, 2);
    let theirs = other.content(&last_segment(&other)).expect("there");
    edit(&disk, &last_segment(&disk), |bytes| bytes[1536..2048].copy_from_slice(&theirs[1536..2048]));
    assert_eq!(damage(recover(&disk)).what, "the frame does not follow the one before it");
    // A whole segment of theirs.
    let disk = written(1);
    disk.put(&last_segment(&disk), theirs);
    assert!(matches!(open(&disk), Err(Error::WrongCluster { .. })));
}

#[test]
fn d16_a_segment_of_a_forked_history_is_refused() {
    let disk = written(3);
    let fork = FakeDisk::new();
    let (mut ledger, _) = open(&fork).expect("new");
    let mut builder = BatchBuilder::new(Position(1));
    for _ in 0..3 {
        builder.push(&[9; 400]).expect("fits");
    }
    ledger.append(&builder.finish(0)).expect("nothing is wrong");
    must_append(&mut ledger, 3);
    drop(ledger);
    let name = last_segment(&disk);
    assert_eq!(name, last_segment(&fork), "both continue at position 4");
    disk.put(&name, fork.content(&name).expect("there"));
    assert_eq!(damage(recover(&disk)).what, "the next segment does not follow the last frame of this one");
}

#[test]
fn d19_a_trim_interrupted_between_two_segments_leaves_a_ledger_that_starts() {
    let disk = with_two_snapshots();
    let (ledger, _) = open(&disk).expect("reopen");
    disk.heal();
    let job = ledger.trim_job(u64::MAX).expect("history is old");
    disk.halt_after(0);
    job.run().expect_err("halted before the sync");
    drop(ledger);
    for fate in [Fate::Kept, Fate::Lost] {
        assert_eq!(recover(&disk.crash(&[fate])).expect("either is fine"), 10);
    }
}

#[test]
fn d20_a_new_segment_whose_name_was_lost_held_nothing() {
    let disk = FakeDisk::new();
    let (mut ledger, _) = open(&disk).expect("new");
    must_append(&mut ledger, 3);
    reserve(&mut ledger);
    disk.heal();
    // The header is written and synced, the file renamed; the directory is not synced.
    disk.halt_after(2);
    append(&mut ledger, 6).expect_err("halted while rotating");
    drop(ledger);
    for fate in [Fate::Kept, Fate::Lost] {
        assert_eq!(recover(&disk.crash(&[fate])).expect("nothing acknowledged is in it"), 3);
    }
}

#[test]
fn d25_what_newer_software_wrote_is_refused_with_its_version() {
    let newer = |disk: &FakeDisk, name: &str, start: usize, crc_at: usize| {
        edit(disk, name, |bytes| {
            let version_at = start + if name == "identity" { 8 } else { 4 };
            bytes[version_at] = 7;
            let crc = crc32c::crc32c(&bytes[start..start + crc_at]);
            bytes[start + crc_at..][..4].copy_from_slice(&crc.to_le_bytes());
        });
        match recover(disk) {
            Err(Error::NewerVersion { file, found: 7 }) => assert_eq!(file, name),
            other => panic!("{name}: {other:?}"),
        }
    };
    let disk = with_two_snapshots();
    newer(&disk, &snapshot_files(&disk)[1].clone(), 0, 36);
    newer(&written(2), "identity", 0, 28);
    newer(&written(6), &segments(&written(6))[1], 0, 508);
    newer(&written(6), &segments(&written(6))[1], 512, 60);
    newer(&written(2), &last_segment(&written(2)), 3 * SECTOR, 60);
}

/// Flips every bit of every file that `matching` selects; the content must be the same or be refused.
fn flip_every_bit(disk: &FakeDisk, matching: &str, records: u64) -> (u64, u64) {
    let (mut same, mut refused) = (0, 0);
    for name in disk.names().into_iter().filter(|name| name.starts_with(matching)) {
        let whole = disk.content(&name).expect("listed");
        for bit in 0..whole.len() * 8 {
            let flipped = disk.crash(&[]);
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            flipped.put(&name, bytes);
            match recover(&flipped) {
                Ok(found) => {
                    assert_eq!(found, records, "bit {bit} of {name} changed the history");
                    same += 1;
                }
                Err(Error::Io(fault)) => panic!("bit {bit} of {name}: {fault}"),
                Err(_) => refused += 1,
            }
        }
    }
    (same, refused)
}

#[test]
fn g9_no_flipped_bit_of_a_log_gives_another_history() {
    let disk = written(3);
    assert_eq!(segments(&disk).len(), 2);
    let (same, refused) = flip_every_bit(&disk, "segment-", 6);
    assert!(same > 0 && refused > 20_000, "{same} the same, {refused} refused");
    assert_eq!(flip_every_bit(&disk, "identity", 6), (0, 32 * 8));
}

/// History is not verified at start, but whenever it is read.
#[test]
fn g9_a_reader_never_hands_out_what_was_not_written() {
    let disk = written(3);
    let name = segments(&disk).swap_remove(0);
    let whole = disk.content(&name).expect("listed");
    let mut refused = 0;
    for bit in 0..whole.len() * 8 {
        let flipped = disk.crash(&[]);
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        flipped.put(&name, bytes);
        let Ok((ledger, _)) = open(&flipped) else { continue };
        let reader = ledger.reader();
        for position in 1..=6 {
            match reader.record(Position(position)).map_err(file_error) {
                Ok(found) => assert_eq!(found, Some(record(position)), "bit {bit}"),
                Err(Error::Damaged(damage)) => {
                    assert!(damage.file == name && damage.from <= Position(3), "{damage}");
                    refused += 1;
                }
                Err(error) => panic!("bit {bit}: {error}"),
            }
        }
    }
    assert!(refused > 8_000, "only {refused}");
}

#[test]
fn g9_no_flipped_bit_of_a_snapshot_gives_another_history() {
    let disk = with_two_snapshots();
    let (_, refused) = flip_every_bit(&disk, "snapshot-", 10);
    assert_eq!(refused, 0, "the older snapshot and the log are always enough");
    let (ledger, _) = open(&disk).expect("reopen");
    ledger.trim_job(u64::MAX).expect("history is old").run().expect("nothing is wrong");
    drop(ledger);
    disk.lose(&snapshot_files(&disk)[1]);
    let (_, refused) = flip_every_bit(&disk, "snapshot-", 10);
    assert!(refused > 0, "nothing to fall back to");
}
