//! Verifies a ledger: its storage, every record and its effect on the state, every snapshot, and that a snapshot and the
//! records after it lead to the same state as a replay of everything.
//!
//! The verification is one pass over the log. A snapshot joins the pass where it begins, gets the same records as the
//! replay, and is compared where it ends: after that point both would only do the same. Damage is collected, and the
//! pass continues after the damage from the next snapshot.

use std::ops::ControlFlow;

use authority::{Position, Time};
use ledger::digest::state_digest;
use ledger::record;
use ledger::{
    ClusterId, Damage, Error, ErrorKind, Inspected, Reader, Recovery, RecoveryError, Seen, SnapshotInfo,
    Unfinished,
};

/// The content of a ledger, and everything that is wrong with it.
#[derive(Clone, Debug, Default)]
pub struct VerifyReport {
    pub cluster: Option<ClusterId>,
    /// How many parts of each kind the storage has, such as segments.
    pub parts: Vec<(&'static str, u64)>,
    /// The size of all batches.
    pub bytes: u64,
    /// Not damage: a server is writing this batch, or a crash cut it off before it was acknowledged.
    pub unfinished: Option<Unfinished>,
    pub records: u64,
    /// The first and the last record, with their times.
    pub first: Option<(Position, Time)>,
    pub last: Option<(Position, Time)>,
    /// Whether the log is kept from its first record on.
    pub is_whole: bool,
    /// Every record after this position was applied; `None` when damage left no state to apply the last records to.
    pub replayed_from: Option<Position>,
    /// The digest of the state at the end, if the state could be restored.
    pub digest: Option<blake3::Hash>,
    pub tasks: usize,
    pub snapshots: Vec<SnapshotReport>,
    pub damages: Vec<Damage>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotReport {
    pub info: SnapshotInfo,
    pub blocks: u64,
    /// Whether the snapshot was compared with a replay, and led to the same state.
    pub is_proven: bool,
}

/// Verifies a ledger: its storage, records and snapshots. `progress` gets the number of bytes that were read. An error
/// means that the storage could not be read.
pub fn verify(reader: &dyn Reader, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport, Error> {
    let mut verifier = Verifier::new(reader)?;
    let mut failed = Ok(());
    let inspected = reader.inspect(&mut |seen| {
        match seen {
            Seen::Missing(damage) => {
                verifier.is_part_missing = true;
                verifier.report.damages.push(damage);
            }
            Seen::Batch(batch) => {
                verifier.report.bytes += batch.bytes;
                verifier.location = (batch.file.to_owned(), batch.offset);
                progress(verifier.report.bytes);
            }
            Seen::Record(position, bytes) => failed = verifier.record(position, bytes),
            Seen::Damage(damage) => {
                verifier.lose_base();
                verifier.report.damages.push(damage);
            }
        }
        if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    failed?;
    verifier.finish(inspected)
}

/// The pass over the log, fed with records in order.
struct Verifier<'a> {
    reader: &'a dyn Reader,
    first: Position,
    report: VerifyReport,
    /// Whether a part of the storage is missing: then a missing beginning is reported already.
    is_part_missing: bool,
    /// The file and the byte that the records come from.
    location: (String, u64),
    /// The replay, while it is unbroken.
    base: Option<Recovery>,
    to_join: std::iter::Peekable<std::vec::IntoIter<SnapshotInfo>>,
    /// States from snapshots that are not compared yet, with their index in the report.
    joined: Vec<(usize, Recovery)>,
}

impl<'a> Verifier<'a> {
    fn new(reader: &'a dyn Reader) -> Result<Verifier<'a>, Error> {
        let first = reader.first()?;
        let is_whole = first == Position(1);
        let mut by_begin = reader.snapshots()?;
        by_begin.sort_by_key(|info| (info.begin, info.end));
        let replayed_from = is_whole.then_some(Position::ZERO);
        Ok(Verifier {
            reader,
            first,
            is_part_missing: false,
            report: VerifyReport { is_whole, replayed_from, ..VerifyReport::default() },
            location: (String::new(), 0),
            base: is_whole.then(Recovery::new),
            to_join: by_begin.into_iter().peekable(),
            joined: Vec::new(),
        })
    }

    fn record(&mut self, position: Position, bytes: &[u8]) -> Result<(), Error> {
        if self.base.as_ref().is_some_and(|base| base.next() != position) {
            self.lose_base();
        }
        self.join(position)?;
        self.report.records += 1;
        let record = match record::decode(bytes) {
            Ok(record) => record,
            Err(error) => {
                self.lose_base();
                self.found_here(position, format!("the record cannot be read: {error}"));
                return Ok(());
            }
        };
        self.report.first.get_or_insert((position, record.at));
        self.report.last = Some((position, record.at));
        if let Some(base) = &mut self.base
            && let Err(error) = base.apply_record(position, &record)
        {
            self.lose_base();
            self.found_here(position, error.to_string());
            return Ok(());
        }
        let mut broken = Vec::new();
        self.joined.retain_mut(|(at, state)| match state.apply_record(position, &record) {
            Ok(()) => true,
            Err(error) => {
                broken.push((*at, error));
                false
            }
        });
        for (at, error) in broken {
            let info = self.report.snapshots[at].info.clone();
            self.found_in_snapshot(&info, format!("the log does not go on from it: {error}"));
        }
        self.compare(position);
        Ok(())
    }

    /// Loads the snapshots that begin before `next`, which is about to be applied.
    fn join(&mut self, next: Position) -> Result<(), Error> {
        while let Some(info) = self.to_join.next_if(|info| info.begin < next) {
            let Some((blocks, state)) = self.load(&info)? else { continue };
            let at = self.report.snapshots.len();
            let begin = info.begin;
            self.report.snapshots.push(SnapshotReport { info, blocks, is_proven: false });
            if begin.next() != next {
                continue;
            }
            if self.base.is_some() {
                self.joined.push((at, state));
                self.compare(begin);
            } else {
                self.report.replayed_from = Some(begin);
                self.base = Some(state);
            }
        }
        Ok(())
    }

    /// Reads a snapshot from end to end. `None` when it is damaged, which is then reported.
    fn load(&mut self, info: &SnapshotInfo) -> Result<Option<(u64, Recovery)>, Error> {
        let loaded = self.reader.load_snapshot(info).map_err(RecoveryError::from);
        match loaded.and_then(|mut snapshot| Recovery::from_snapshot(&mut *snapshot)) {
            Ok(state) => Ok(Some((state.blocks(), state))),
            Err(error) => self.refused(info, error),
        }
    }

    fn refused<T>(&mut self, info: &SnapshotInfo, error: RecoveryError) -> Result<Option<T>, Error> {
        match error {
            RecoveryError::Ledger(error) => match error.damage() {
                Some(damage) => self.report.damages.push(damage.clone()),
                None if error.kind() == ErrorKind::Damaged => self.found_in_snapshot(info, error.to_string()),
                None => return Err(error),
            },
            other => self.found_in_snapshot(info, other.to_string()),
        }
        Ok(None)
    }

    /// Compares the snapshots that end here with the replay.
    fn compare(&mut self, position: Position) {
        let is_due =
            |(at, _): &(usize, Recovery), report: &VerifyReport| report.snapshots[*at].info.end == position;
        let (due, rest) = std::mem::take(&mut self.joined)
            .into_iter()
            .partition::<Vec<_>, _>(|one| is_due(one, &self.report));
        self.joined = rest;
        let Some(base) = self.base.as_ref().filter(|_| !due.is_empty()) else { return };
        let expected = state_digest(base.state());
        for (at, state) in due {
            let found = state_digest(state.state());
            if found == expected {
                self.report.snapshots[at].is_proven = true;
                continue;
            }
            let info = self.report.snapshots[at].info.clone();
            let what = format!("it gives the state {found}, but the replay gives {expected}");
            self.found_in_snapshot(&info, what);
        }
    }

    fn finish(mut self, inspected: Inspected) -> Result<VerifyReport, Error> {
        let Inspected { next, unfinished, cluster, first_part, parts } = inspected;
        self.join(next)?;
        let last = Position(next.0.saturating_sub(1));
        let ahead: Vec<_> = self.to_join.by_ref().collect();
        let early = self.report.snapshots.iter().map(|snapshot| snapshot.info.clone());
        for info in early.filter(|info| info.end > last).chain(ahead) {
            let what = "it is newer than the log, whose end is missing";
            self.report.damages.push(Damage::new(&info.name, 0, what, next, Some(info.end)));
        }
        if let Some(base) = &self.base {
            self.report.digest = Some(state_digest(base.state()));
            self.report.tasks = base.state().len();
        }
        self.check_beginning(&first_part);
        Ok(VerifyReport { cluster, parts, unfinished, ..self.report })
    }

    /// A log without its beginning needs a snapshot in its place.
    fn check_beginning(&mut self, first_part: &str) {
        let replaces_it = |snapshot: &SnapshotReport| snapshot.info.begin.next() >= self.first;
        if self.report.is_whole || self.is_part_missing || self.report.snapshots.iter().any(replaces_it) {
            return;
        }
        let what = "the log before this segment is trimmed, and no usable snapshot stands for it";
        let to = Some(Position(self.first.0.saturating_sub(1)));
        self.report.damages.push(Damage::new(first_part, 0, what, Position(1), to));
    }

    /// The records behind do not follow the state any more.
    fn lose_base(&mut self) {
        self.base = None;
        self.report.replayed_from = None;
        self.joined.clear();
    }

    fn found_here(&mut self, position: Position, what: String) {
        let (file, offset) = &self.location;
        self.report.damages.push(Damage::new(file, *offset, what, position, Some(position)));
    }

    fn found_in_snapshot(&mut self, info: &SnapshotInfo, what: String) {
        self.report.damages.push(Damage::new(&info.name, 0, what, Position(1), Some(info.end)));
    }
}
