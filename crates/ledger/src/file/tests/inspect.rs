//! Inspections of a directory without its lock: the same records as the owner sees, every damage named, and no
//! unfinished batch of a writer taken for damage.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use disk::{Disk, RealDisk};
use fake_disk::{Errno, FakeDisk, Fate};

use super::{super::*, script::*};
use crate::{Inspected, Position, Seen};

/// What an inspection found: records, checked to be what was written, damages, the end.
#[derive(Debug)]
struct Walked {
    positions: Vec<u64>,
    damages: Vec<Damage>,
    end: Inspected,
}

fn inspect(disk: &FakeDisk) -> Result<Inspection, Error> {
    Inspection::open(Arc::new(disk.clone()) as Arc<dyn Disk>)
}

fn walk(inspection: &Inspection) -> Result<Walked, Error> {
    let (mut positions, mut damages) = (Vec::new(), Vec::new());
    let end = inspection.inspect(&mut |seen| {
        match seen {
            Seen::Batch(_) => {}
            Seen::Record(position, bytes) => {
                assert_eq!(bytes, record(position.0), "record {position}");
                positions.push(position.0);
            }
            Seen::Missing(damage) | Seen::Damage(damage) => damages.push(damage),
        }
        ControlFlow::Continue(())
    });
    let end = end.map_err(file_error)?;
    Ok(Walked { positions, damages, end })
}

fn up_to(last: u64) -> Vec<u64> {
    (1..=last).collect()
}

#[test]
fn p10_the_owner_keeps_its_lock_and_both_see_the_same() {
    let disk = FakeDisk::new();
    let (mut ledger, _) = open(&disk).unwrap();
    for count in 1..=6 {
        must_append(&mut ledger, count);
    }
    let before: Vec<_> = disk.names().into_iter().map(|name| (disk.content(&name), name)).collect();
    let walked = walk(&inspect(&disk).unwrap()).unwrap();
    assert_eq!((walked.positions, walked.end.next), (up_to(21), ledger.next()));
    assert!(walked.damages.is_empty() && walked.end.unfinished.is_none());
    let after: Vec<_> = disk.names().into_iter().map(|name| (disk.content(&name), name)).collect();
    assert_eq!(before, after, "nothing was changed");
}

#[test]
fn segments_begun_after_opening_are_found_by_the_seal() {
    let disk = FakeDisk::new();
    let (mut ledger, _) = open(&disk).unwrap();
    let inspection = inspect(&disk).unwrap();
    for count in 1..=6 {
        must_append(&mut ledger, count);
    }
    assert!(segments(&disk).len() > 2);
    let walked = walk(&inspection).unwrap();
    assert_eq!((walked.positions, walked.damages), (up_to(21), vec![]));
}

#[test]
fn d7_a_frame_that_is_not_whole_is_unfinished_and_no_damage() {
    let disk = FakeDisk::new();
    let (mut ledger, _) = open_with(&disk, Options { segment_bytes: 64 << 10, ..options() }).unwrap();
    must_append(&mut ledger, 3);
    disk.heal();
    disk.fail_at(1, Errno::Io);
    let mut builder = BatchBuilder::new(Position(4));
    builder.push(&vec![0; 448 + 19 * 508 - 4]).unwrap();
    ledger.append(&builder.finish(0)).expect_err("the sync fails");
    for kept in 1..20 {
        let walked = walk(&inspect(&disk.crash(&[Fate::Torn((1 << kept) - 1)])).unwrap()).unwrap();
        assert_eq!((walked.positions, walked.damages), (up_to(3), vec![]), "{kept} sectors");
        assert_eq!(walked.end.unfinished.unwrap().first, Position(4), "{kept} sectors");
    }
}

#[test]
fn d9_every_damage_is_named_and_what_is_behind_it_is_read() {
    let disk = written(6);
    let names = segments(&disk);
    // Position 1 alone is in the first frame of the first segment; the second segment begins with another.
    edit(&disk, &names[0], |bytes| bytes[512 + 200] ^= 4);
    edit(&disk, &names[1], |bytes| bytes[512 + 70] ^= 4);
    let walked = walk(&inspect(&disk).unwrap()).unwrap();
    let places: Vec<_> = walked.damages.iter().map(|damage| (damage.file.clone(), damage.offset)).collect();
    assert_eq!(places, [(names[0].clone(), 512), (names[1].clone(), 512)]);
    for damage in &walked.damages {
        let at_risk = damage.from.0..=damage.to.unwrap().0;
        assert!(!walked.positions.iter().any(|position| at_risk.contains(position)), "{damage}");
    }
    let lost: u64 = walked.damages.iter().map(|damage| damage.to.unwrap().0 - damage.from.0 + 1).sum();
    assert_eq!(walked.positions.len() as u64 + lost, 21, "all others were read");
}

#[test]
fn d13_a_missing_segment_and_a_broken_header_are_named_with_their_positions() {
    let disk = written(6);
    let names = segments(&disk);
    disk.lose(&names[1]);
    let walked = walk(&inspect(&disk).unwrap()).unwrap();
    assert_eq!((walked.damages.len(), &walked.damages[0].file), (1, &names[2]));

    let disk = written(6);
    edit(&disk, &names[1], |bytes| bytes[30] ^= 1);
    let walked = walk(&inspect(&disk).unwrap()).unwrap();
    assert_eq!((walked.damages.len(), &walked.damages[0].file), (1, &names[1]));
    assert!(walked.damages[0].to.is_some() && walked.positions.contains(&21));
}

#[test]
fn d14_a_lost_last_segment_is_noticed_by_the_seal_before_it() {
    let disk = written(6);
    disk.lose(&segments(&disk).pop().unwrap());
    let walked = walk(&inspect(&disk).unwrap()).unwrap();
    assert_eq!(walked.damages.len(), 1);
    assert!(walked.damages[0].what.contains("sealed"));
}

#[test]
fn g9_no_flipped_bit_loses_a_record_without_a_word() {
    let disk = written(3);
    for name in segments(&disk) {
        let whole = disk.content(&name).unwrap();
        for bit in 0..whole.len() * 8 {
            let flipped = disk.crash(&[]);
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            flipped.put(&name, bytes);
            match inspect(&flipped).and_then(|inspection| walk(&inspection)) {
                Ok(walked) => {
                    let told = !walked.damages.is_empty();
                    assert!(told || walked.positions == up_to(6), "bit {bit} of {name}: {walked:?}");
                }
                Err(Error::NewerVersion { .. }) => {}
                Err(error) => panic!("bit {bit} of {name}: {error}"),
            }
        }
    }
}

#[test]
fn d26_an_empty_and_a_foreign_directory_are_told_apart() {
    assert!(matches!(inspect(&FakeDisk::new()), Err(Error::NotInitialised)));
    let disk = FakeDisk::new();
    disk.put("thesis.txt", b"mine".to_vec());
    assert!(matches!(inspect(&disk), Err(Error::Foreign { .. })));
}

/// A reader that is not synchronised with the writer meets half-written frames, and must wait them out.
#[test]
fn p10_a_writer_at_work_never_looks_like_damage() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { segment_bytes: 64 << 10, ..options() };
    let disk = Arc::new(RealDisk::open(dir.path()).unwrap()) as Arc<dyn Disk>;
    let (mut ledger, _) = FileLedger::open(disk, options).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let told = stop.clone();
    let writer = std::thread::spawn(move || {
        while !told.load(Ordering::Relaxed) {
            reserve(&mut ledger);
            must_append(&mut ledger, 30);
        }
        ledger.next()
    });
    let mut newest = Position(1);
    for _ in 0..100 {
        let walked = walk(&Inspection::open_dir(dir.path()).unwrap()).unwrap();
        assert!(walked.damages.is_empty(), "{:?}", walked.damages);
        assert!(walked.end.next >= newest, "what was there once stays");
        newest = walked.end.next;
    }
    stop.store(true, Ordering::Relaxed);
    let last = writer.join().unwrap();
    assert_eq!(walk(&Inspection::open_dir(dir.path()).unwrap()).unwrap().end.next, last);
}
