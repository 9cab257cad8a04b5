//! A ledger's directory as it is, without the lock and without changing anything, beside a writer or after one.
//!
//! What was there when the directory was opened stays readable: every file is held open, so trimming takes nothing
//! away. Damage is collected, not fatal, so that all of it can be named. What a running writer has in hand is never
//! taken for damage; it may be seen before it is durable.

mod walk;

use std::{io::ErrorKind, ops::ControlFlow, path::Path, sync::Arc};

use super::{
    error::{Damage, Error, Fault},
    init,
    names::Name,
    open::{check_link, no_segments, read_identity, read_segment},
    options::Options,
    shared::Segment,
    snapshot::Walker,
    snapshot_reader::{self, SnapshotReader},
};
use crate::{
    ClusterId, Position, SnapshotInfo, Visit,
    disk::{Disk, File, ReadOnlyDisk},
};

pub use walk::{End, FrameInfo, Seen, Unfinished};

/// How often a place is looked at again before what stands there counts. A writer finishes what it has in hand
/// between two looks.
const LOOKS: usize = 64;

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
    /// Its length on disk, most of which may still be blank.
    pub bytes: u64,
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
        let cluster = read_identity(&*disk)?;
        let mut looks = 0;
        loop {
            match Self::look(&disk, cluster) {
                // A file that was listed and is gone was trimmed or renamed meanwhile.
                Err(Error::Io(fault)) if fault.source.kind() == ErrorKind::NotFound && looks < LOOKS => {}
                result => return result,
            }
            looks += 1;
        }
    }

    fn look(disk: &Arc<dyn Disk>, cluster: ClusterId) -> Result<Self, Error> {
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

    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The first position that is still there; 1 when nothing was trimmed.
    pub fn first(&self) -> Position {
        self.segments.first().map_or(Position(1), |segment| segment.header.first)
    }

    /// Segments that are missing or whose header is damaged. Damage inside of segments shows in a walk.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// The segments with a sound header, oldest first.
    pub fn segments(&self) -> impl Iterator<Item = SegmentInfo> {
        self.segments.iter().map(|segment| SegmentInfo {
            name: segment.name.clone(),
            first: segment.header.first,
            time_ms: segment.header.time_ms,
            bytes: segment.bytes,
        })
    }

    /// All snapshots by their names, usable or not, oldest first.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = &SnapshotInfo> {
        self.snapshots.iter().map(|(info, _)| info)
    }

    /// Opens a snapshot and checks its header and trailer; its blocks are checked as they are read.
    pub fn snapshot(&self, info: &SnapshotInfo) -> Result<SnapshotReader, Error> {
        let Some((_, file)) = self.snapshots.iter().find(|(known, _)| known == info) else {
            let source = ErrorKind::NotFound.into();
            return Err(Fault { action: "open", file: info.name.clone(), source }.into());
        };
        let walker = Walker::new(file.clone(), &info.name, self.cluster)
            .map_err(|fault| snapshot_reader::refusal(info, fault))?;
        let trailer = walker.trailer();
        if (trailer.begin, trailer.end) != (info.begin, info.end) {
            let (what, offset) = ("the snapshot is not what its name says", 0);
            let (from, to) = (Position(1), Some(info.end));
            return Err(Error::Damaged(Damage { file: info.name.clone(), offset, what, from, to }));
        }
        Ok(SnapshotReader::new(walker, info.clone()))
    }

    /// Goes through every frame from the one that holds `from` to the end of the log, over damage to whatever can
    /// be read behind it, until `visit` breaks.
    pub fn walk(
        &self,
        from: Position,
        visit: &mut dyn FnMut(Seen<'_>) -> ControlFlow<()>,
    ) -> Result<End, Error> {
        walk::walk(self, from, visit)
    }

    /// Calls `visit` with every record from `from` up to `to`, in order, until it breaks. Damage ends it.
    pub fn read(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<End, Error> {
        let concerns = |damage: &&Damage| damage.from <= to && damage.to.is_none_or(|last| last >= from);
        if let Some(damage) = self.damages.iter().find(concerns) {
            return Err(Error::Damaged(damage.clone()));
        }
        let mut damaged = None;
        let end = self.walk(from, &mut |seen| match seen {
            Seen::Frame(_) => ControlFlow::Continue(()),
            Seen::Record(position, _) if position > to => ControlFlow::Break(()),
            Seen::Record(position, record) => visit(position, record),
            Seen::Damage(damage) => {
                damaged = Some(damage);
                ControlFlow::Break(())
            }
        })?;
        damaged.map_or(Ok(end), |damage| Err(Error::Damaged(damage)))
    }
}

/// Another cluster's segment is as bad as a broken one; a newer version is not damage, but cannot be read.
fn as_damage(error: Error, first: Position) -> Result<Damage, Error> {
    match error {
        Error::Damaged(damage) => Ok(damage),
        Error::WrongCluster { .. } => Ok(Damage {
            file: super::names::segment(first),
            offset: 0,
            what: "the segment belongs to another cluster",
            from: first,
            to: None,
        }),
        other => Err(other),
    }
}
