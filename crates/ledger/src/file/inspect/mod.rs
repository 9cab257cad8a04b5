//! Reads a ledger's directory without the lock and without changing anything, beside a writer or after one.
//!
//! What was there when the directory was opened stays readable: every file is open, so trimming takes nothing away.
//! Damage is collected, not fatal, so that all of it can be named. A batch that a running writer has not finished is never
//! taken for damage; it may be seen before it is durable.

mod walk;

use std::{io::ErrorKind, ops::ControlFlow, path::Path, sync::Arc};

use authority::Time;
use disk::{Disk, File, ReadOnlyDisk};

use super::{
    error::{Error, Fault},
    init,
    names::Name,
    open::{check_link, no_segments, read_segment},
    options::Options,
    shared::Segment,
    snapshot::Walker,
    snapshot_reader::{self, SnapshotReader},
};
use crate::{
    ClusterId, Damage, Error as LedgerError, Hold, InspectVisit, Inspected, Position, Reader, Seen,
    SnapshotInfo, SnapshotSource, Visit, hold::Holds,
};

const END: Position = Position(u64::MAX);
/// How often a sector is read again before its content counts. A writer finishes its write between two reads.
const REREADS: usize = 64;

pub struct Inspection {
    disk: Arc<dyn Disk>,
    cluster: ClusterId,
    segments: Vec<Arc<Segment>>,
    /// Oldest first.
    snapshots: Vec<(SnapshotInfo, Arc<dyn File>)>,
    damages: Vec<Damage>,
}

/// One file of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    pub name: String,
    pub first: Position,
    /// The caller's time when it was begun; 0 in the very first.
    pub time_ms: u64,
}

impl Inspection {
    /// Opens a directory of the operating system for reading.
    pub fn open_dir(path: &Path) -> Result<Self, Error> {
        match ReadOnlyDisk::open(path) {
            Ok(disk) => Self::open(Arc::new(disk)),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::NotInitialised),
            Err(error) => Err(Fault::of("open", &path.to_string_lossy())(error).into()),
        }
    }

    pub fn open(disk: Arc<dyn Disk>) -> Result<Self, Error> {
        init::check_ours(&*disk, &Options::default())?;
        let cluster = init::read_identity(&*disk)?;
        let mut scans = 0;
        loop {
            match Self::scan(&disk, cluster) {
                // A file that was listed and is gone was trimmed or renamed meanwhile.
                Err(Error::Io(fault)) if fault.source.kind() == ErrorKind::NotFound && scans < REREADS => {}
                result => return result,
            }
            scans += 1;
        }
    }

    fn scan(disk: &Arc<dyn Disk>, cluster: ClusterId) -> Result<Self, Error> {
        let mut found =
            Self { disk: disk.clone(), cluster, segments: vec![], snapshots: vec![], damages: vec![] };
        let mut listed = disk.list().map_err(Fault::of("list", "the data directory"))?;
        listed.sort();
        // The positions of a segment whose header cannot be used end where the next one begins.
        let mut unusable: Option<Damage> = None;
        for name in listed {
            match Name::parse(&name) {
                Name::Segment(first) => {
                    let file = disk.open(&name).map_err(Fault::of("open", &name))?;
                    let read = read_segment(name, first, cluster, file);
                    if let Some(mut damage) = unusable.take() {
                        damage.to = Some(Position(first.0.saturating_sub(1)));
                        found.damages.push(damage);
                    } else if let (Some(before), Ok(after)) = (found.segments.last(), &read)
                        && let Err(Error::Damaged(damage)) = check_link(before, after)
                    {
                        found.damages.push(damage);
                    }
                    match read {
                        Ok(segment) => found.segments.push(Arc::new(segment)),
                        Err(error) => unusable = Some(as_damage(error, first)?),
                    }
                }
                Name::Snapshot(begin, end) => {
                    let file = disk.open(&name).map_err(Fault::of("open", &name))?;
                    found.snapshots.push((SnapshotInfo { begin, end, name }, file));
                }
                _ => {}
            }
        }
        found.damages.extend(unusable);
        if found.segments.is_empty() && found.damages.is_empty() {
            return Err(no_segments());
        }
        found.snapshots.sort_by_key(|(info, _)| (info.end, info.begin));
        Ok(found)
    }

    /// The segments with a sound header, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = SegmentInfo> {
        self.segments.iter().map(|segment| SegmentInfo {
            name: segment.name.clone(),
            first: segment.header.first,
            time_ms: segment.header.time_ms,
        })
    }

    /// Visits every record from `from` up to `to`, in order, until `visit` breaks. Damage ends it.
    fn visit(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<Inspected, Error> {
        let concerns = |damage: &&Damage| damage.from <= to && damage.to.is_none_or(|last| last >= from);
        if let Some(damage) = self.damages.iter().find(concerns) {
            return Err(damage.clone().into());
        }
        let mut damaged = None;
        let end = walk::walk(self, from, &mut |seen| match seen {
            Seen::Missing(_) | Seen::Batch(_) => ControlFlow::Continue(()),
            Seen::Record(position, _) if position > to => ControlFlow::Break(()),
            Seen::Record(position, record) => visit(position, record),
            Seen::Damage(damage) => {
                damaged = Some(damage);
                ControlFlow::Break(())
            }
        })?;
        damaged.map_or(Ok(end), |damage| Err(damage.into()))
    }
}

impl Reader for Inspection {
    fn first(&self) -> Result<Position, LedgerError> {
        Ok(self.segments.first().map_or(Position(1), |segment| segment.header.first))
    }

    fn next(&self) -> Result<Position, LedgerError> {
        let newest = self.segments.last().map_or(Position(1), |segment| segment.header.first);
        Ok(self.visit(newest, END, &mut |_, _| ControlFlow::Continue(()))?.next)
    }

    fn record(&self, position: Position) -> Result<Option<Vec<u8>>, LedgerError> {
        if position < self.first()? {
            return Ok(None);
        }
        let mut found = None;
        self.visit(position, position, &mut |_, record| {
            found = Some(record.to_vec());
            ControlFlow::Break(())
        })?;
        found.map(Some).ok_or_else(|| Error::BeyondEnd(position).into())
    }

    fn read(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<(), LedgerError> {
        let first = self.first()?;
        if from < first {
            return Err(LedgerError::trimmed(from, first));
        }
        self.visit(from, to, visit)?;
        Ok(())
    }

    /// Time never falls, so every record before a segment that was begun earlier was made earlier too.
    fn seek(&self, time: Time) -> Result<Position, LedgerError> {
        let earlier = self.segments().take_while(|segment| segment.time_ms < time.0);
        earlier.last().map_or_else(|| self.first(), |segment| Ok(segment.first))
    }

    /// All snapshots by their names, usable or not.
    fn snapshots(&self) -> Result<Vec<SnapshotInfo>, LedgerError> {
        Ok(self.snapshots.iter().map(|(info, _)| info.clone()).collect())
    }

    /// Checks the header and the trailer of a snapshot; its blocks are checked as they are read.
    fn load_snapshot(&self, info: &SnapshotInfo) -> Result<Box<dyn SnapshotSource>, LedgerError> {
        let Some((_, file)) = self.snapshots.iter().find(|(known, _)| known == info) else {
            let source = ErrorKind::NotFound.into();
            return Err(Fault { action: "open", file: info.name.clone(), source }.into());
        };
        let walker = Walker::new(file.clone(), &info.name, self.cluster)
            .map_err(|fault| snapshot_reader::refusal(info, fault))?;
        let trailer = walker.trailer();
        if (trailer.begin, trailer.end) != (info.begin, info.end) {
            let what = "the snapshot is not what its name says";
            return Err(Error::from(Damage::new(&info.name, 0, what, Position(1), Some(info.end))).into());
        }
        Ok(Box::new(SnapshotReader::new(walker, info)))
    }

    /// An inspection has its files open, so nothing has to be held.
    fn hold(&self, _name: &str, from: Position) -> Result<Box<dyn Hold>, LedgerError> {
        Ok(Holds::default().hold(from))
    }

    fn inspect(&self, visit: &mut InspectVisit<'_>) -> Result<Inspected, LedgerError> {
        let mut frames = 0;
        let is_over = self.damages.iter().any(|damage| visit(Seen::Missing(damage.clone())).is_break());
        let mut inspected = walk::walk(self, Position(1), &mut |seen| {
            frames += u64::from(matches!(seen, Seen::Batch(_)));
            if is_over { ControlFlow::Break(()) } else { visit(seen) }
        })?;
        inspected.cluster = Some(self.cluster);
        inspected.first_part = self.segments.first().map_or(String::new(), |segment| segment.name.clone());
        inspected.parts = vec![("segments", self.segments.len() as u64), ("frames", frames)];
        Ok(inspected)
    }

    fn stored_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }
}

/// Another cluster's segment is as bad as a broken one; a newer version is not damage, but cannot be read.
fn as_damage(error: Error, first: Position) -> Result<Damage, Error> {
    match error {
        Error::Damaged(damage) => Ok(damage),
        Error::WrongCluster { .. } => {
            let what = "the segment belongs to another cluster";
            Ok(Damage::new(&super::names::segment(first), 0, what, first, None))
        }
        other => Err(other),
    }
}
