//! Many lives of many ledgers, with random work, settings, faults and crashes in each.
//!
//! Where the sweep tries every single fault in one short life, this goes on living with what the faults
//! before have left. Every record is unique, so that a record of a lost branch cannot pass for its
//! successor. `LEDGER_TEST_SEEDS=from..to` runs other seeds.

use std::collections::BTreeMap;

use fake_disk::{Errno, FakeDisk, Fate, Unsynced};

use super::{super::*, script::*};
use crate::Position;

const SEEDS: std::ops::Range<u64> = 0..1_500;
const LIVES: u64 = 8;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What the ledger must hold: everything acknowledged, and perhaps the whole of the batch that was not.
#[derive(Default)]
struct Truth {
    acked: Vec<Vec<u8>>,
    unknown: Vec<Vec<u8>>,
}

/// How often something worth testing happened, over all seeds.
#[derive(Debug, Default)]
struct Reached {
    torn: u64,
    kept_unknown: u64,
    lost_unknown: u64,
    snapshots_loaded: u64,
    trimmed: u64,
    no_space: u64,
    start_failed: u64,
    in_place: u64,
}

#[test]
fn random_lives_keep_every_promise() {
    let seeds = std::env::var("LEDGER_TEST_SEEDS").ok().and_then(|text| {
        let (from, to) = text.split_once("..")?;
        Some(from.parse().ok()?..to.parse().ok()?)
    });
    let default = seeds.is_none();
    let mut reached = Reached::default();
    for seed in seeds.unwrap_or(SEEDS) {
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| many_lives(seed, &mut reached)));
        if let Err(panic) = lived {
            eprintln!("this was seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
    let Reached {
        torn,
        kept_unknown,
        lost_unknown,
        snapshots_loaded,
        trimmed,
        no_space,
        start_failed,
        in_place,
    } = reached;
    let all = [torn, kept_unknown, lost_unknown, snapshots_loaded, trimmed, no_space, start_failed, in_place];
    assert!(!default || all.iter().all(|count| *count > 0), "not everything was reached: {reached:?}");
}

fn many_lives(seed: u64, reached: &mut Reached) {
    let mut random = Random(seed);
    let mut disk = FakeDisk::new();
    let mut truth = Truth::default();
    for life in 0..LIVES {
        let options = Options {
            segment_bytes: [2048, 3072, 4096, 8192][random.below(4) as usize],
            create: Some(CLUSTER),
            history_max_bytes: [0, 6000][random.below(2) as usize],
            ..Options::default()
        };
        disk.heal();
        disk.set_capacity(random.chance(30).then(|| disk.used_bytes() + random.below(12_000)));
        let (at, errno) =
            (random.below(400), [Errno::Io, Errno::NoSpace, Errno::Halted][random.below(3) as usize]);
        match (random.below(4), errno) {
            (0, _) => {}
            (_, Errno::Halted) => disk.halt_after(at),
            (1, _) => disk.fail_from(at, errno),
            (_, _) => disk.fail_at(at, errno),
        }
        one_life(&disk, options, &mut truth, &mut random, (seed, life), reached);
        disk.heal();
        if random.chance(60) {
            let fates: Vec<_> = disk.unsynced().iter().map(|thing| fate(thing, &mut random)).collect();
            disk = disk.crash(&fates);
        }
    }
    disk.set_capacity(None);
    let calm = Options { segment_bytes: 4096, ..Options::default() };
    let empty = disk.names().iter().all(|name| name != "identity");
    match FileLedger::open(std::sync::Arc::new(disk.clone()), calm) {
        Ok((ledger, report)) => check(&ledger, &report, &mut truth, reached),
        Err(Error::NotInitialised) if empty && truth.acked.is_empty() => {}
        Err(error) => panic!("the last start: {error}"),
    }
}

fn fate(thing: &Unsynced, random: &mut Random) -> Fate {
    match (thing, random.below(3)) {
        (_, 0) => Fate::Kept,
        (Unsynced::Write { sectors: 2.. }, 1) => Fate::Torn(random.below(1 << 16)),
        _ => Fate::Lost,
    }
}

fn one_life(
    disk: &FakeDisk,
    options: Options,
    truth: &mut Truth,
    random: &mut Random,
    (seed, life): (u64, u64),
    reached: &mut Reached,
) {
    let segment_bytes = options.segment_bytes;
    let (mut ledger, report) = match FileLedger::open(std::sync::Arc::new(disk.clone()), options) {
        Ok(opened) => opened,
        Err(Error::Io(_)) => {
            reached.start_failed += 1;
            return;
        }
        Err(error) => panic!("nothing is damaged, but: {error}"),
    };
    if !read_all(&ledger, &report, truth, reached) {
        return;
    }
    reached.in_place += u64::from(report.rewritten == Rewritten::InPlace);
    let mut job = None;
    let mut slices: Option<Slices> = None;
    for step in 0..random.below(40) {
        match random.below(10) {
            0 | 1 => job = job.or_else(|| ledger.reserve_job()),
            2 => {
                if let Some(job) = job.take() {
                    // The ledger knows whether it failed.
                    let _ = job.run();
                }
            }
            3 => slices = slices.or_else(|| Slices::begin(&ledger, truth)),
            4 => reached.trimmed += ledger.trim_job(0).and_then(|job| job.run().ok()).unwrap_or(0) as u64,
            _ => {
                let records: Vec<_> = (0..random.below(4))
                    .map(|i| {
                        let mut record = format!("{seed} {life} {step} {i} ").into_bytes();
                        record.resize(record.len() + random.below(300) as usize, 0);
                        record
                    })
                    .collect();
                if !append(&mut ledger, records, truth, segment_bytes, reached) {
                    return;
                }
            }
        }
        slices = slices.and_then(|slices| slices.step(truth, random));
    }
}

/// Whether the ledger can be used on.
fn append(
    ledger: &mut FileLedger,
    records: Vec<Vec<u8>>,
    truth: &mut Truth,
    segment_bytes: u64,
    reached: &mut Reached,
) -> bool {
    let mut builder = BatchBuilder::new(ledger.next());
    for record in &records {
        builder.push(record).expect("small");
    }
    match ledger.append(&builder.finish(0)) {
        Ok(()) => truth.acked.extend(records),
        Err(AppendError::Refused(Refusal::NoSpace)) => reached.no_space += 1,
        Err(AppendError::Refused(Refusal::TooLarge { .. })) => assert!(segment_bytes < 4096),
        Err(AppendError::Refused(fenced)) => panic!("{fenced}"),
        Err(AppendError::Unknown(_)) => {
            truth.unknown = records;
            return false;
        }
    }
    assert_eq!(ledger.next(), Position(truth.acked.len() as u64 + 1));
    true
}

/// A snapshot that is written between appends, as a coordinator would: each block names its position.
struct Slices {
    writer: Box<dyn SnapshotSink>,
    written: usize,
}

impl Slices {
    fn begin(ledger: &FileLedger, truth: &Truth) -> Option<Self> {
        let begin = Position(truth.acked.len() as u64);
        Some(Self { writer: ledger.begin_snapshot(begin).ok()?, written: 0 })
    }

    fn step(mut self, truth: &Truth, random: &mut Random) -> Option<Self> {
        for _ in 0..random.below(12) {
            let Some(record) = truth.acked.get(self.written) else {
                let _ = self.writer.finish(Position(truth.acked.len() as u64));
                return None;
            };
            self.written += 1;
            let block = [&(self.written as u64).to_le_bytes(), record.as_slice()].concat();
            self.writer.write_block(&block).ok()?;
        }
        Some(self)
    }
}

fn check(ledger: &FileLedger, report: &OpenReport, truth: &mut Truth, reached: &mut Reached) {
    assert!(read_all(ledger, report, truth, reached), "nothing fails any more");
}

/// Restores from snapshot and log, and compares with the truth. `false` when a call to the disk failed.
fn read_all(ledger: &FileLedger, report: &OpenReport, truth: &mut Truth, reached: &mut Reached) -> bool {
    let mut found = BTreeMap::new();
    let mut from = Position(1);
    let damaged = |error: Error| match error {
        Error::Io(_) => false,
        error => panic!("nothing is damaged, but: {error}"),
    };
    match load_snapshot(ledger) {
        Err(error) => return damaged(error),
        Ok(None) => {}
        Ok(Some(mut snapshot)) => {
            reached.snapshots_loaded += 1;
            from = snapshot.info().begin.next();
            let mut block = Vec::new();
            loop {
                match snapshot.next_block(&mut block).map_err(file_error) {
                    Err(error) => return damaged(error),
                    Ok(false) => break,
                    Ok(true) => {
                        let (position, record) =
                            block.split_first_chunk().expect("it starts with a position");
                        found.insert(u64::from_le_bytes(*position), record.to_vec());
                    }
                }
            }
        }
    }
    let replayed = replay(ledger, from, |position, record| {
        found.insert(position.0, record.to_vec());
    });
    if let Err(error) = replayed {
        return damaged(error);
    }
    reached.torn += u64::from(report.dropped.is_some());
    let unknown = std::mem::take(&mut truth.unknown);
    if found.len() == truth.acked.len() {
        reached.lost_unknown += u64::from(!unknown.is_empty());
    } else {
        reached.kept_unknown += 1;
        truth.acked.extend(unknown);
    }
    let expected: BTreeMap<_, _> = (1..).zip(truth.acked.iter().cloned()).collect();
    assert!(found == expected, "{} records found, {} expected", found.len(), expected.len());
    assert_eq!(ledger.next(), Position(truth.acked.len() as u64 + 1));
    true
}
