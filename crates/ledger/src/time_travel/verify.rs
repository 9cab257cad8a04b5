//! Checks everything that a directory holds: every frame, every record and what it does to the state, every
//! snapshot, and that a snapshot with the records behind it gives the state that never stopped.
//!
//! One pass over the log, from beginning to end. A snapshot joins where it begins, gets the same records as the
//! replay, and is compared where it ends: from there on both would only do the same. Damage is collected, and the
//! pass goes on behind it from the next snapshot.

use std::ops::ControlFlow;

use authority::{Position, Time};

use crate::digest::state_digest;
use crate::file::{ClusterId, Damage, Error, Inspection, Seen, SnapshotInfo, Unfinished};
use crate::record;
use crate::{Recovery, RecoveryError};

/// What a directory holds, and all that is wrong with it.
#[derive(Clone, Debug)]
pub struct VerifyReport {
    pub cluster: ClusterId,
    pub segments: u64,
    pub frames: u64,
    pub records: u64,
    /// Of the frames.
    pub bytes: u64,
    /// The first and the last record, with their times.
    pub first: Option<(Position, Time)>,
    pub last: Option<(Position, Time)>,
    /// Whether the log is there from its first record.
    pub is_whole: bool,
    /// Every record after this position was applied; `None` when damage left no state to apply the last ones to.
    pub replayed_from: Option<Position>,
    /// Of the state at the end, when it could be reached.
    pub digest: Option<blake3::Hash>,
    pub tasks: usize,
    pub snapshots: Vec<SnapshotReport>,
    /// No damage: a writer has it in hand, or a crash cut it off before it was acknowledged.
    pub unfinished: Option<Unfinished>,
    pub findings: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotReport {
    pub info: SnapshotInfo,
    pub blocks: u64,
    /// Whether it was compared with a replay, and was the same.
    pub is_proven: bool,
}

/// Something that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub file: String,
    pub offset: u64,
    pub what: String,
    /// The first position at risk, and the last when it is known.
    pub from: Position,
    pub to: Option<Position>,
}

impl From<Damage> for Finding {
    fn from(damage: Damage) -> Finding {
        let Damage { file, offset, what, from, to } = damage;
        Finding { file, offset, what: what.to_owned(), from, to }
    }
}

/// Checks everything. `progress` is told how many bytes of frames were read. An error means that something could
/// not be read at all.
pub fn verify(inspection: &Inspection, progress: &mut dyn FnMut(u64)) -> Result<VerifyReport, Error> {
    let is_whole = inspection.first() == Position(1);
    let report = VerifyReport {
        cluster: inspection.cluster(),
        segments: inspection.segments().count() as u64,
        frames: 0,
        records: 0,
        bytes: 0,
        first: None,
        last: None,
        is_whole,
        replayed_from: is_whole.then_some(Position::ZERO),
        digest: None,
        tasks: 0,
        snapshots: Vec::new(),
        unfinished: None,
        findings: inspection.damages().iter().cloned().map(Finding::from).collect(),
    };
    let mut by_begin: Vec<_> = inspection.snapshots().cloned().collect();
    by_begin.sort_by_key(|info| (info.begin, info.end));
    let mut pass = Pass {
        inspection,
        report,
        place: (String::new(), 0),
        base: is_whole.then(Recovery::new),
        to_join: by_begin.into_iter().peekable(),
        joined: Vec::new(),
    };
    let mut failed = None;
    let end = inspection.walk(Position(1), &mut |seen| {
        let went = match seen {
            Seen::Frame(frame) => {
                pass.report.frames += 1;
                pass.report.bytes += frame.bytes;
                pass.place = (frame.file.to_owned(), frame.offset);
                progress(pass.report.bytes);
                Ok(())
            }
            Seen::Record(position, bytes) => pass.record(position, bytes),
            Seen::Damage(damage) => {
                pass.lose_base();
                pass.report.findings.push(damage.into());
                Ok(())
            }
        };
        match went {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    pass.report.unfinished = end.unfinished;
    pass.finish(end.next)
}

struct Pass<'a> {
    inspection: &'a Inspection,
    report: VerifyReport,
    /// The frame that is being read.
    place: (String, u64),
    /// The replay, while it is unbroken.
    base: Option<Recovery>,
    to_join: std::iter::Peekable<std::vec::IntoIter<SnapshotInfo>>,
    /// States from snapshots that are not compared yet, with their place in the report.
    joined: Vec<(usize, Recovery)>,
}

impl Pass<'_> {
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
        let mut reader = match self.inspection.snapshot(info) {
            Ok(reader) => reader,
            Err(error) => return self.refused(info, error.into()),
        };
        match Recovery::from_snapshot(&mut reader) {
            Ok(state) => Ok(Some((reader.blocks(), state))),
            Err(error) => self.refused(info, error),
        }
    }

    fn refused<T>(&mut self, info: &SnapshotInfo, error: RecoveryError) -> Result<Option<T>, Error> {
        match error {
            RecoveryError::Ledger(Error::Damaged(damage)) => self.report.findings.push(damage.into()),
            RecoveryError::Ledger(error) => return Err(error),
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

    fn finish(mut self, next: Position) -> Result<VerifyReport, Error> {
        self.join(next)?;
        let last = Position(next.0.saturating_sub(1));
        let ahead: Vec<_> = self.to_join.by_ref().collect();
        let early = self.report.snapshots.iter().map(|snapshot| snapshot.info.clone());
        for info in early.filter(|info| info.end > last).chain(ahead) {
            let what = "it is newer than the log, whose end is missing".to_owned();
            let (from, to) = (next, Some(info.end));
            self.report.findings.push(Finding { file: info.name, offset: 0, what, from, to });
        }
        if let Some(base) = &self.base {
            self.report.digest = Some(state_digest(base.state()));
            self.report.tasks = base.state().len();
        }
        self.check_beginning();
        Ok(self.report)
    }

    /// A log without its beginning needs a snapshot that stands for it.
    fn check_beginning(&mut self) {
        let first = self.inspection.first();
        let stands_for_it = |snapshot: &SnapshotReport| snapshot.info.begin.next() >= first;
        let told = !self.inspection.damages().is_empty();
        if self.report.is_whole || told || self.report.snapshots.iter().any(stands_for_it) {
            return;
        }
        let file = self.inspection.segments().next().map_or(String::new(), |segment| segment.name);
        let what = "the log before this segment is trimmed, and no usable snapshot stands for it".to_owned();
        let (from, to) = (Position(1), Some(Position(first.0.saturating_sub(1))));
        self.report.findings.push(Finding { file, offset: 0, what, from, to });
    }

    /// The records behind do not follow the state any more.
    fn lose_base(&mut self) {
        self.base = None;
        self.report.replayed_from = None;
        self.joined.clear();
    }

    fn found_here(&mut self, position: Position, what: String) {
        let (file, offset) = self.place.clone();
        self.report.findings.push(Finding { file, offset, what, from: position, to: Some(position) });
    }

    fn found_in_snapshot(&mut self, info: &SnapshotInfo, what: String) {
        let (from, to) = (Position(1), Some(info.end));
        self.report.findings.push(Finding { file: info.name.clone(), offset: 0, what, from, to });
    }
}
