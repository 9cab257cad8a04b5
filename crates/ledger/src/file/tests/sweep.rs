//! The sweep: a short life of a ledger, with a fault at every single call to the disk.
//!
//! Whatever happens, everything acknowledged is there afterwards, nothing is invented, and positions have
//! no gaps. Only noise on the disk may also end in a refusal.

use fake_disk::{Errno, FakeDisk, Fate, Unsynced};

use super::{super::*, script::*};
use crate::Position;

/// More unsynced things than this at one time would make the combinations explode; there never are.
const MAX_UNSYNCED: usize = 6;

/// The batches of one life, in records.
const COUNTS: [u64; 7] = [2, 1, 3, 0, 4, 1, 2];

/// What the ledger promised during a life.
#[derive(Clone, Copy, Debug, Default)]
struct Promise {
    /// Records that were acknowledged or seen after a start.
    durable: u64,
    /// Records that were ever given to the ledger.
    offered: u64,
}

/// Lives through appends over several rotations, snapshots, trims and a restart, until something fails.
fn live(disk: &FakeDisk, promise: &mut Promise) -> Result<(), String> {
    let options = Options { history_max_bytes: SEGMENT_BYTES, ..options() };
    for life in 0..3 {
        let (mut ledger, _) = open_with(disk, options.clone()).map_err(|error| error.to_string())?;
        let found = restore(&ledger).map_err(|error| error.to_string())?;
        assert!(found >= promise.durable && found <= promise.offered, "{found} but {promise:?}");
        promise.durable = found;
        for (round, count) in COUNTS.into_iter().enumerate() {
            if life == 0 || round % 2 == 0 {
                reserve(&mut ledger);
            }
            promise.offered = promise.offered.max(ledger.next().0 - 1 + count);
            match append(&mut ledger, count) {
                Ok(()) => promise.durable = ledger.next().0 - 1,
                Err(AppendError::Refused(_)) => promise.offered = promise.durable,
                Err(unknown) => {
                    let next = ledger.next();
                    assert!(
                        matches!(append(&mut ledger, 1), Err(AppendError::Unknown(_))),
                        "poisoned for good"
                    );
                    assert_eq!(ledger.next(), next);
                    return Err(unknown.to_string());
                }
            }
            if round % 3 == 2 {
                // A snapshot or a trim that fails is tried again another time.
                let _ = snapshot(&ledger);
                let _ = ledger.trim_job(0).map(TrimJob::run);
            }
        }
    }
    Ok(())
}

/// Recovers twice, the second time after a power cut, and appends: what was seen must stay.
fn check(disk: &FakeDisk, promise: Promise, story: &dyn std::fmt::Debug) {
    let found = match recover(disk) {
        Ok(found) => found,
        Err(error) => panic!("{story:?}: refused: {error}"),
    };
    assert!(found >= promise.durable, "{story:?}: {found} records left of {promise:?}");
    assert!(found <= promise.offered, "{story:?}: {found} records invented beyond {promise:?}");
    let cut = disk.crash(&[]);
    let (mut ledger, report) = open(&cut).unwrap_or_else(|error| panic!("{story:?}: second start: {error}"));
    assert_eq!(report.next, Position(found + 1), "{story:?}: seen once, seen always");
    // The shortest of frames must not leave anything of a dropped one visible behind it.
    must_append(&mut ledger, 0);
    drop(ledger);
    let (mut ledger, _) = open(&cut).unwrap_or_else(|error| panic!("{story:?}: third start: {error}"));
    must_append(&mut ledger, 3);
    drop(ledger);
    assert_eq!(recover(&cut).expect("fourth start"), found + 3, "{story:?}");
}

fn calls_of_a_life() -> FakeDisk {
    let disk = FakeDisk::new();
    live(&disk, &mut Promise::default()).expect("nothing fails");
    disk
}

#[test]
fn the_life_reaches_rotation_reserve_snapshot_and_trim() {
    let disk = calls_of_a_life();
    let names = disk.names();
    assert!(segments(&disk).len() >= 3, "{names:?}");
    assert!(segments(&disk)[0] != "segment-00000000000000000001", "history was trimmed: {names:?}");
    assert_eq!(names.iter().filter(|name| name.starts_with("snapshot-")).count(), 2, "{names:?}");
}

/// D1–D5: each call fails once, with each error.
#[test]
fn every_call_may_fail_once() {
    for at in 0..calls_of_a_life().calls() {
        for errno in [Errno::Io, Errno::NoSpace, Errno::Short] {
            let disk = FakeDisk::new();
            disk.fail_at(at, errno);
            let mut promise = Promise::default();
            let lived = live(&disk, &mut promise);
            assert!(errno != Errno::Short || lived.is_ok(), "short writes are continued: {lived:?}");
            disk.heal();
            check(&disk, promise, &("fails once", at, errno, lived));
        }
    }
}

#[test]
fn every_call_may_be_the_first_of_many_that_fail() {
    for at in 0..calls_of_a_life().calls() {
        for errno in [Errno::Io, Errno::NoSpace] {
            let disk = FakeDisk::new();
            disk.fail_from(at, errno);
            let mut promise = Promise::default();
            let lived = live(&disk, &mut promise);
            disk.heal();
            check(&disk, promise, &("fails from", at, errno, &lived));
            check(&disk.crash(&[]), promise, &("fails from, then power cut", at, errno, lived));
        }
    }
}

/// D7, D8, D17–D20: the machine stops after each call, and each unsynced thing is kept, lost or torn.
#[test]
fn every_call_may_be_the_last_before_a_power_cut() {
    let mut crashes = 0;
    for_each_halt(&|disk| live_through(disk), &mut |disk, promise, at| {
        for fates in combinations(&disk.unsynced(), &[Fate::Kept, Fate::Lost]) {
            crashes += 1;
            check(&disk.crash(&fates), promise, &("power cut after", at, &fates));
        }
    });
    assert!(crashes > 500, "only {crashes} crashes");
}

/// P11: a start that is itself interrupted at any call can be repeated.
#[test]
fn recovery_may_be_interrupted_at_every_call() {
    let unsynced = unsynced_tail();
    let promise = Promise { durable: 6, offered: 8 };
    for tail in [Fate::Torn(0b01), Fate::Torn(0b10), Fate::Kept, Fate::Lost] {
        let whole = unsynced.crash(&[tail]);
        let _ = recover(&whole);
        for at in 0..whole.calls() {
            let disk = unsynced.crash(&[tail]);
            disk.halt_after(at);
            let _ = recover(&disk);
            disk.heal();
            check(&disk, promise, &("process ends in recovery after", at, tail));
            for fates in combinations(&disk.unsynced(), &[Fate::Kept, Fate::Lost]) {
                check(&disk.crash(&fates), promise, &("power cut in recovery after", at, tail, &fates));
            }
        }
    }
}

/// P11, as above, but the process died and the page cache still holds what was never synced.
#[test]
fn recovery_after_a_failed_sync_may_be_interrupted_at_every_call() {
    let promise = Promise { durable: 6, offered: 8 };
    let whole = unsynced_tail();
    let _ = recover(&whole);
    for at in 0..whole.calls() {
        let disk = unsynced_tail();
        disk.halt_after(at);
        let _ = recover(&disk);
        disk.heal();
        for fates in combinations(&disk.unsynced(), &[Fate::Kept, Fate::Lost]) {
            check(&disk.crash(&fates), promise, &("power cut in recovery after", at, &fates));
        }
    }
}

/// P11 on a full disk, where the tail is written over itself: after a power cut, and after a failed sync.
#[test]
fn recovery_in_place_may_be_interrupted_at_every_call() {
    let promise = Promise { durable: 6, offered: 8 };
    let full = |fate: Option<Fate>| {
        let disk = unsynced_tail();
        disk.lose("reserve");
        let disk = fate.map_or(disk.clone(), |fate| disk.crash(&[fate]));
        disk.set_capacity(Some(disk.used_bytes()));
        disk
    };
    for tail in [None, Some(Fate::Torn(0b01)), Some(Fate::Torn(0b10)), Some(Fate::Kept)] {
        let whole = full(tail);
        let (mut ledger, report) = open(&whole).expect("no space is needed");
        assert_eq!(report.rewritten, Rewritten::InPlace);
        let calls = whole.calls();
        // The shortest of frames must not leave anything of a dropped one visible behind it.
        must_append(&mut ledger, 0);
        drop(ledger);
        assert_eq!(recover(&whole).expect("nothing is damaged") + 1, report.next.0);
        for at in 0..calls {
            let disk = full(tail);
            disk.halt_after(at);
            let _ = recover(&disk);
            disk.heal();
            disk.set_capacity(None);
            for fates in combinations(&disk.unsynced(), &[Fate::Kept, Fate::Lost]) {
                check(&disk.crash(&fates), promise, &("power cut in recovery after", at, tail, &fates));
            }
        }
    }
}

/// Noise may end in a refusal; it must never end in another history.
#[test]
fn noise_ends_in_the_same_history_or_a_refusal() {
    let (mut refused, mut recovered) = (0, 0);
    for_each_halt(&|disk| live_through(disk), &mut |disk, promise, at| {
        for fates in combinations(&disk.unsynced(), &[Fate::Kept, Fate::Garbage]) {
            match recover(&disk.crash(&fates)) {
                Err(Error::Io(fault)) => panic!("after {at} with {fates:?}: {fault}"),
                Err(_) => refused += 1,
                Ok(found) => {
                    recovered += 1;
                    assert!(
                        (promise.durable..=promise.offered).contains(&found),
                        "after {at} with {fates:?}"
                    );
                }
            }
        }
    });
    assert!(refused > 0 && recovered > 0, "{refused} refused, {recovered} recovered");
}

fn live_through(disk: &FakeDisk) -> Promise {
    let mut promise = Promise::default();
    let _ = live(disk, &mut promise);
    promise
}

/// Six records are durable, a reserve is there, and a frame of two sectors is written but not synced.
fn unsynced_tail() -> FakeDisk {
    let disk = written(3);
    let (mut ledger, _) = open(&disk).expect("reopen");
    reserve(&mut ledger);
    disk.heal();
    // An append is a write and a sync.
    disk.fail_at(1, Errno::Io);
    append(&mut ledger, 2).expect_err("the sync fails");
    drop(ledger);
    disk.heal();
    assert_eq!(disk.unsynced(), [Unsynced::Write { sectors: 2 }]);
    disk
}

/// Calls `then` with the disk after each halt that follows a call which could change something.
fn for_each_halt(life: &dyn Fn(&FakeDisk) -> Promise, then: &mut dyn FnMut(&FakeDisk, Promise, u64)) {
    let whole = FakeDisk::new();
    life(&whole);
    for at in (0..whole.calls()).filter(|at| whole.call_changes(*at)) {
        let disk = FakeDisk::new();
        disk.halt_after(at);
        let promise = life(&disk);
        disk.heal();
        then(&disk, promise, at);
    }
}

/// Every combination of the given fates and, for writes of several sectors, of which sectors were kept
/// (for longer writes, some).
fn combinations(unsynced: &[Unsynced], fates: &[Fate]) -> Vec<Vec<Fate>> {
    assert!(unsynced.len() <= MAX_UNSYNCED, "{} things are unsynced at once", unsynced.len());
    let mut all = vec![Vec::new()];
    for thing in unsynced {
        let mut choices = fates.to_vec();
        match *thing {
            Unsynced::Write { sectors: sectors @ 2..=4 } => {
                choices.extend((1..(1 << sectors) - 1).map(Fate::Torn))
            }
            Unsynced::Write { sectors: 5.. } => {
                choices.extend([0b1, 0b10, !0b1, 0b0101_0101, 0b1010_1010, 0b11, 0xff].map(Fate::Torn));
            }
            _ => {}
        }
        all = all
            .iter()
            .flat_map(|chosen| choices.iter().map(|choice| [chosen.as_slice(), &[*choice]].concat()))
            .collect();
    }
    all
}
