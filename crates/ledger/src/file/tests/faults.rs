//! One test for each row of the disk fault table that a running ledger meets: D1–D5, D23, D24, D26.

use fake_disk::{Errno, FakeDisk};

use super::{super::*, script::*};
use crate::Position;

fn opened(batches: u64) -> (FakeDisk, FileLedger) {
    let disk = written(batches);
    let (ledger, _) = open(&disk).expect("reopen");
    disk.heal();
    (disk, ledger)
}

#[test]
fn d1_a_short_write_is_continued() {
    let (disk, mut ledger) = opened(1);
    disk.fail_at(0, Errno::Short);
    must_append(&mut ledger, 4);
    assert_eq!(disk.calls(), 3, "two writes and one sync");
    assert_eq!(recover(&disk.crash(&[])).expect("reopen"), 5);
}

#[test]
fn d2_a_failed_write_has_an_unknown_outcome_and_ends_the_ledger() {
    let (disk, mut ledger) = opened(3);
    let reader = ledger.reader();
    disk.fail_at(0, Errno::Io);
    assert!(matches!(append(&mut ledger, 1), Err(AppendError::Unknown(_))));
    let hidden = reader.record(Position(7)).expect_err("nothing is visible");
    assert_eq!(hidden.kind(), ErrorKind::BeyondEnd);
    assert!(matches!(append(&mut ledger, 1), Err(AppendError::Unknown(_))));
    assert!(ledger.reserve_job().is_none());
}

#[test]
fn d3_a_failed_sync_is_not_tried_again() {
    let (disk, mut ledger) = opened(3);
    disk.fail_at(1, Errno::Io);
    assert!(matches!(append(&mut ledger, 1), Err(AppendError::Unknown(_))));
    let calls = disk.calls();
    let again = append(&mut ledger, 1).expect_err("poisoned");
    assert!(again.to_string().contains("an earlier call failed"), "{again}");
    assert_eq!(disk.calls(), calls, "the disk is left alone");
    assert_eq!(recover(&disk.crash(&[])).expect("power cut"), 6);
}

#[test]
fn d3_what_a_failed_sync_left_in_the_cache_is_made_durable_or_dropped_at_the_next_start() {
    let (disk, mut ledger) = opened(3);
    disk.fail_at(1, Errno::Io);
    append(&mut ledger, 1).expect_err("the sync fails");
    drop(ledger);
    disk.heal();
    let seen = recover(&disk).expect("the frame is still in the cache");
    assert_eq!(seen, 7);
    assert_eq!(recover(&disk.crash(&[])).expect("power cut"), seen, "once seen, it stays");
}

#[test]
fn d4_a_full_disk_leaves_one_segment_for_the_work_at_hand() {
    let disk = FakeDisk::new();
    let (mut ledger, _) = open(&disk).expect("a new directory");
    reserve(&mut ledger);
    assert_eq!(ledger.space(), DiskSpace::Plenty);
    let full = disk.used_bytes();
    disk.set_capacity(Some(full));

    while segments(&disk).len() < 2 {
        must_append(&mut ledger, 1);
    }
    assert_eq!(ledger.space(), DiskSpace::Plenty, "nobody has tried to prepare another one yet");
    reserve(&mut ledger);
    assert_eq!(ledger.space(), DiskSpace::FinishOnly);
    assert!(!disk.names().contains(&"reserve.tmp".to_owned()), "a failed try leaves nothing behind");

    let refused = loop {
        match append(&mut ledger, 1) {
            Ok(()) => assert_eq!(ledger.space(), DiskSpace::FinishOnly),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, AppendError::Refused(Refusal::NoSpace)), "{refused}");
    assert_eq!(ledger.space(), DiskSpace::Nothing);
    reserve(&mut ledger);
    assert_eq!(ledger.space(), DiskSpace::Nothing);

    disk.set_capacity(None);
    reserve(&mut ledger);
    assert_eq!(ledger.space(), DiskSpace::Plenty);
    must_append(&mut ledger, 1);
    let count = ledger.next().0 - 1;
    drop(ledger);
    assert_eq!(recover(&disk).expect("reopen"), count);
}

#[test]
fn d4_a_ledger_on_a_full_disk_can_be_started_and_still_has_its_last_segment() {
    for batches in 0..6 {
        let disk = written(batches);
        disk.set_capacity(Some(disk.used_bytes()));
        let (mut ledger, report) = open(&disk).expect("no space is needed");
        assert_eq!(report.rewritten, Rewritten::InPlace);
        assert!(!disk.names().contains(&"segment.tmp".to_owned()));
        reserve(&mut ledger);
        assert_eq!(ledger.space(), DiskSpace::FinishOnly);
        while append(&mut ledger, 1).is_ok() {}
        assert_eq!(ledger.space(), DiskSpace::Nothing);
        let records = restore(&ledger).expect("sound");
        drop(ledger);
        assert_eq!(recover(&disk).expect("reopen"), records);
        disk.set_capacity(None);
        let (mut ledger, _) = open(&disk).expect("reopen");
        must_append(&mut ledger, 2);
        drop(ledger);
        assert_eq!(recover(&disk.crash(&[])).expect("power cut"), records + 2);
    }
}

#[test]
fn a_last_segment_that_is_too_short_for_the_first_frame_is_replaced() {
    let disk = FakeDisk::new();
    drop(open_with(&disk, Options { segment_bytes: MIN_SEGMENT_BYTES, ..options() }).expect("a short one"));
    disk.set_capacity(Some(disk.used_bytes()));
    let (mut ledger, _) = open(&disk).expect("it keeps its length");
    disk.set_capacity(None);
    must_append(&mut ledger, 5);
    assert_eq!(segments(&disk).len(), 1);
    drop(ledger);
    assert_eq!(recover(&disk.crash(&[])).expect("power cut"), 5);
}

#[test]
fn d5_a_full_disk_abandons_the_snapshot_and_nothing_else() {
    let (disk, mut ledger) = opened(4);
    snapshot(&ledger).expect("stored");
    must_append(&mut ledger, 1);
    let before = disk.names();
    disk.set_capacity(Some(disk.used_bytes() + 600));
    assert!(matches!(snapshot(&ledger), Err(SnapshotError::Storage(_))));
    assert_eq!(disk.names(), before, "no temporary file is left, and no snapshot is lost");
    disk.set_capacity(None);
    snapshot(&ledger).expect("the next try works");
    assert_eq!(restore(&ledger).expect("sound"), 11);
}

#[test]
fn d17_a_dropped_snapshot_leaves_no_trace() {
    let (disk, ledger) = opened(3);
    let before = disk.names();
    let mut writer = ledger.begin_snapshot(Position(3)).expect("begun");
    writer.write_block(&vec![1; 400_000]).expect("written");
    drop(writer);
    assert_eq!(disk.names(), before);
    ledger.begin_snapshot(Position(3)).expect("another one can begin");
}

#[test]
fn d17_what_a_crash_left_of_a_snapshot_is_removed_at_start() {
    let disk = written(3);
    disk.put("snapshot.tmp", vec![1; 5000]);
    let (ledger, report) = open(&disk).expect("it was never named");
    assert_eq!((snapshots(&ledger), report.bad_snapshots), (vec![], vec![]));
    assert!(!disk.names().contains(&"snapshot.tmp".to_owned()));
}

#[test]
fn d18_a_snapshot_whose_name_was_lost_leaves_the_older_one_and_its_log() {
    let (disk, mut ledger) = opened(3);
    let older = snapshot(&ledger).expect("stored");
    must_append(&mut ledger, 2);
    let names = disk.names();
    disk.heal();
    // The last call of a snapshot is the sync of the directory.
    snapshot(&ledger).expect("stored");
    let calls = disk.calls();
    let (disk, mut ledger) = opened(3);
    snapshot(&ledger).expect("stored");
    must_append(&mut ledger, 2);
    disk.heal();
    disk.halt_after(calls - 2);
    snapshot(&ledger).expect_err("the directory is not synced");
    assert!(ledger.trim_job(u64::MAX).is_none(), "it covers nothing yet");
    drop(ledger);
    let cut = disk.crash(&[]);
    assert_eq!(cut.names(), names);
    let (ledger, _) = open(&cut).expect("power cut");
    assert_eq!(snapshots(&ledger), [older]);
    assert_eq!(restore(&ledger).expect("sound"), 8);
}

#[test]
fn d18_a_finished_snapshot_is_durable() {
    let (disk, ledger) = opened(3);
    let info = snapshot(&ledger).expect("stored");
    assert_eq!(disk.unsynced(), []);
    let (ledger, _) = open(&disk.crash(&[])).expect("power cut");
    assert_eq!(snapshots(&ledger), [info]);
}

#[test]
fn d23_a_second_ledger_in_the_same_directory_is_refused() {
    let (disk, ledger) = opened(2);
    assert!(matches!(open(&disk), Err(Error::Locked)));
    drop(ledger);
    assert_eq!(recover(&disk).expect("the lock is free again"), 3);
}

#[test]
fn d24_a_file_that_may_not_be_touched_is_refused_before_anything_changes() {
    let disk = written(4);
    disk.heal();
    recover(&disk).expect("nothing is wrong");
    let calls = disk.calls();
    for at in 0..calls {
        let disk = written(4);
        disk.put("snapshot.tmp", vec![1]);
        let before: Vec<_> = disk.names().into_iter().map(|name| (disk.content(&name), name)).collect();
        disk.heal();
        disk.fail_at(at, Errno::Access);
        let opened = open(&disk);
        // Reads at the end of the start, after the checks, may come after the first change.
        let changed = (0..at).any(|call| disk.call_changes(call));
        if !changed && opened.is_err() {
            let after: Vec<_> = disk.names().into_iter().map(|name| (disk.content(&name), name)).collect();
            assert!(before == after, "call {at} changed something");
        }
    }
}

#[test]
fn d26_an_empty_directory_is_initialised_only_on_request() {
    let disk = FakeDisk::new();
    disk.put("lost+found", vec![]);
    let careful = Options { create: None, ..options() };
    assert!(matches!(open_with(&disk, careful.clone()), Err(Error::NotInitialised)));
    assert_eq!(disk.names(), ["lost+found"], "nothing was made");
    assert!(open(&disk).expect("on request").1.created);
    assert!(!open_with(&disk, careful).expect("it exists now").1.created);
}

#[test]
fn d26_a_directory_with_other_things_in_it_is_refused() {
    let disk = FakeDisk::new();
    disk.put("thesis.doc", vec![1, 2, 3]);
    assert!(matches!(open(&disk), Err(Error::Foreign { name }) if name == "thesis.doc"));
    assert_eq!(disk.names(), ["thesis.doc"]);
}

#[test]
fn d26_a_directory_that_lost_its_identity_is_refused() {
    let disk = written(2);
    disk.lose("identity");
    assert!(matches!(open(&disk), Err(Error::Foreign { name }) if name.starts_with("segment-")));
}

#[test]
fn d26_another_clusters_directory_is_refused() {
    let disk = written(2);
    let other = Options { cluster: Some(ClusterId([9; 16])), ..options() };
    assert!(matches!(open_with(&disk, other), Err(Error::WrongCluster { found: CLUSTER, .. })));
    let same = Options { cluster: Some(CLUSTER), create: Some(ClusterId([9; 16])), ..options() };
    assert_eq!(open_with(&disk, same).expect("its own id is kept").1.cluster, CLUSTER);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    for segment_bytes in [0, 1536, 4097] {
        let refused = open_with(&FakeDisk::new(), Options { segment_bytes, ..options() });
        assert!(matches!(refused, Err(Error::SegmentBytes { .. })), "{segment_bytes}");
    }
}

/// P13: replay takes no more memory for a long log than for a short one, and says how far it is.
#[test]
fn p13_replay_is_bounded_and_shows_progress() {
    let disk = FakeDisk::new();
    let (mut ledger, _) = open_with(&disk, Options { segment_bytes: 4 << 20, ..options() }).expect("new");
    for _ in 0..12 {
        let mut builder = BatchBuilder::new(ledger.next());
        builder.push(&vec![1; 900_000]).expect("fits");
        ledger.append(&builder.finish(0)).expect("nothing is wrong");
    }
    drop(ledger);
    let (ledger, _) = open(&disk).expect("reopen");
    let reader = ledger.reader();
    let replayed = replay(&ledger, Position(1), |position, _| {
        assert_eq!(reader.replayed(), Position(position.0 - 1));
    });
    replayed.expect("sound");
    assert_eq!(reader.replayed(), Position(12));
    assert!(disk.longest_read() <= 1 << 20, "{}", disk.longest_read());
}
