//! Opens a ledger: reads the directory, refuses what it must, and only then changes anything.
//!
//! Opening can be interrupted at any step and repeated (P11): everything before the rewrite of the tail only reads, and
//! the copy of the tail replaces the last segment in one rename.

use std::{io::ErrorKind, path::Path, sync::Arc};

use disk::{Disk, File, RealDisk, read_exact_at};

use super::{
    error::{Error, Fault},
    frame::SECTOR_BYTES,
    init,
    ledger::FileLedger,
    names::{self, Name},
    offsets::OffsetFiles,
    options::Options,
    sealed::SealFault,
    segment::{MIN_SEGMENT_BYTES, SegmentHeader},
    shared::{Segment, Shared},
    snapshot,
    tail::{self, Dropped, Rewritten},
};
use crate::{ClusterId, Damage, Position, SnapshotInfo, Storage};

/// The result of opening a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenReport {
    pub cluster: ClusterId,
    /// Whether the directory was initialised by this call.
    pub created: bool,
    /// The first position that is still there.
    pub first: Position,
    /// The position that the next batch will start with.
    pub next: Position,
    pub dropped: Option<Dropped>,
    /// How the last segment was made durable; in place means that the disk is full.
    pub rewritten: Rewritten,
    /// Snapshots that cannot be used, newest first, and why. The files are kept (D11).
    pub bad_snapshots: Vec<(String, String)>,
}

impl OpenReport {
    /// What an operator should know, one sentence each.
    pub fn notices(&self) -> Vec<String> {
        let dropped = self.dropped.iter().map(|dropped| {
            format!(
                "A crash cut off the last batch, which was never acknowledged. The batch was dropped: {dropped}."
            )
        });
        let bad = self.bad_snapshots.iter().map(|(name, why)| {
            format!("Snapshot {name} cannot be used ({why}); an older one and the log were used instead.")
        });
        dropped.chain(bad).collect()
    }
}

/// The directory of the projection offsets in a data directory. Projections were once called effects.
pub const OFFSETS: &str = "effects";

/// Whether a directory holds a ledger. It does from the moment at which its initialization is complete.
pub fn is_initialised(ledger: &Path) -> bool {
    ledger.join(names::IDENTITY).exists()
}

/// Opens the ledger and the projection offsets in a data directory.
pub fn open_data_dir(data: &Path, options: Options) -> Result<(Storage, OpenReport), Error> {
    let (ledger, report) = FileLedger::open_dir(&data.join("ledger"), options)?;
    let offsets = OffsetFiles::open_dir(&data.join(OFFSETS))?;
    Ok((Storage { ledger: Box::new(ledger), offsets: Arc::new(offsets) }, report))
}

impl FileLedger {
    /// Opens the ledger in a directory of the operating system.
    pub fn open_dir(path: &Path, options: Options) -> Result<(Self, OpenReport), Error> {
        let disk = match options.create {
            Some(_) => RealDisk::create(path),
            None => RealDisk::open(path),
        };
        match disk {
            Ok(disk) => Self::open(Arc::new(disk), options),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(Error::NotInitialised),
            Err(error) => Err(Fault::of("open", &path.to_string_lossy())(error).into()),
        }
    }

    pub fn open(disk: Arc<dyn Disk>, options: Options) -> Result<(Self, OpenReport), Error> {
        if options.segment_bytes < MIN_SEGMENT_BYTES
            || !options.segment_bytes.is_multiple_of(SECTOR_BYTES as u64)
        {
            return Err(Error::SegmentBytes { min: MIN_SEGMENT_BYTES });
        }
        // A directory that is not ours is refused before even a lock file appears in it.
        init::check_ours(&*disk, &options)?;
        let lock = disk.lock().map_err(|error| match error.kind() {
            ErrorKind::WouldBlock => Error::Locked,
            _ => Fault::of("lock", names::LOCK)(error).into(),
        })?;
        let created = init::initialise(&disk, &options)?;
        let cluster = init::read_identity(&*disk)?;
        if let Some(expected) = options.cluster.filter(|expected| *expected != cluster) {
            return Err(Error::WrongCluster { found: cluster, expected });
        }

        let directory = Directory::scan(&disk, cluster)?;
        let last = directory.segments.last().ok_or_else(no_segments)?;
        let tail = tail::judge(last, options.drop_unverified_tail)?;
        let (snapshots, bad_snapshots) = directory.usable_snapshots(&disk, cluster, tail.next)?;
        if !created {
            directory.check_covered(&snapshots)?;
        }

        for name in &directory.temps {
            disk.remove(name).map_err(Fault::of("remove", name))?;
        }
        let fits = directory.reserve_bytes == Some(options.segment_bytes);
        if directory.reserve_bytes.is_some() && !fits {
            disk.remove(names::RESERVE).map_err(Fault::of("remove", names::RESERVE))?;
        }
        let (active, rewritten) = tail::rewrite(&disk, last, &tail, &options, fits)?;
        let active = Arc::new(active);

        let mut segments: Vec<_> = directory.segments.into_iter().map(Arc::new).collect();
        segments.pop();
        segments.push(active.clone());
        let first = segments[0].header.first;
        let shared = Arc::new(Shared::new(disk, cluster, tail.next, segments, snapshots));
        let ledger = Self {
            shared,
            options,
            active,
            offset: tail.offset,
            next: tail.next,
            chain: tail.chain,
            vouchable: tail.vouchable,
            reserve: Arc::default(),
            frame: Vec::new(),
            poison: None,
            _lock: lock,
        };
        let (next, dropped) = (tail.next, tail.dropped);
        let report = OpenReport { cluster, created, first, next, dropped, rewritten, bad_snapshots };
        Ok((ledger, report))
    }
}

/// Names of snapshots that cannot be used, and why.
type BadSnapshots = Vec<(String, String)>;

/// The files of a directory, all open: a file that may not be read and written is noticed before anything
/// is changed (D24).
struct Directory {
    segments: Vec<Segment>,
    /// Newest first.
    snapshots: Vec<SnapshotInfo>,
    reserve_bytes: Option<u64>,
    temps: Vec<String>,
}

impl Directory {
    fn scan(disk: &Arc<dyn Disk>, cluster: ClusterId) -> Result<Self, Error> {
        let mut found = Self { segments: vec![], snapshots: vec![], reserve_bytes: None, temps: vec![] };
        let mut listed = disk.list().map_err(Fault::of("list", "the data directory"))?;
        listed.sort();
        for name in listed {
            let kind = Name::parse(&name);
            if matches!(kind, Name::Identity | Name::Lock | Name::Ignored | Name::Foreign) {
                continue;
            }
            let file = disk.open(&name).map_err(Fault::of("open", &name))?;
            match kind {
                Name::Segment(first) => found.segments.push(read_segment(name, first, cluster, file)?),
                Name::Snapshot(begin, end) => found.snapshots.insert(0, SnapshotInfo { begin, end, name }),
                Name::Reserve => {
                    found.reserve_bytes = Some(file.len().map_err(Fault::of("measure", &name))?);
                }
                _ => found.temps.push(name),
            }
        }
        found.snapshots.sort_by_key(|snapshot| std::cmp::Reverse((snapshot.end, snapshot.begin)));
        found.check_links()?;
        Ok(found)
    }

    /// Each segment names the one before it (D13).
    fn check_links(&self) -> Result<(), Error> {
        self.segments.windows(2).try_for_each(|pair| check_link(&pair[0], &pair[1]))
    }

    /// Snapshots that can be used, oldest first, and those that cannot. The newest usable one is read to the end.
    fn usable_snapshots(
        &self,
        disk: &Arc<dyn Disk>,
        cluster: ClusterId,
        next: Position,
    ) -> Result<(Vec<SnapshotInfo>, BadSnapshots), Error> {
        let (mut usable, mut bad) = (Vec::new(), Vec::new());
        for info in &self.snapshots {
            if info.end >= next {
                let what = "the snapshot is newer than the log: its last segment is missing or damaged";
                return Err(damaged(&info.name, what, next, Some(info.end)));
            }
            let file = disk.open(&info.name).map_err(Fault::of("open", &info.name))?;
            let checked = if usable.is_empty() {
                snapshot::verify(file, &info.name, cluster)
            } else {
                snapshot::Walker::new(file, &info.name, cluster).map(|walker| walker.trailer())
            };
            match checked {
                Ok(trailer) if (trailer.begin, trailer.end) == (info.begin, info.end) => {
                    usable.insert(0, info.clone())
                }
                Ok(_) => bad.push((info.name.clone(), "it is not what its name says".to_owned())),
                Err(snapshot::SnapshotFault::NewerVersion(found)) => {
                    return Err(Error::NewerVersion { file: info.name.clone(), found });
                }
                Err(fault) => bad.push((info.name.clone(), fault.to_string())),
            }
        }
        Ok((usable, bad))
    }

    /// A log without its beginning needs a snapshot that stands for it.
    fn check_covered(&self, usable: &[SnapshotInfo]) -> Result<(), Error> {
        let log_first = self.segments[0].header.first;
        let covered = usable.last().map_or(Position(0), |snapshot| snapshot.begin);
        if log_first.0 > covered.0 + 1 {
            let what = "the log before this segment is trimmed, and no usable snapshot stands for it";
            let to = Some(Position(log_first.0 - 1));
            return Err(damaged(&self.segments[0].name, what, Position(covered.0 + 1), to));
        }
        Ok(())
    }
}

/// Checks the header of a segment's file. Its frames are not read.
pub(super) fn read_segment(
    name: String,
    first: Position,
    cluster: ClusterId,
    file: Arc<dyn File>,
) -> Result<Segment, Error> {
    let bytes = file.len().map_err(Fault::of("measure", &name))?;
    if bytes < 2 * SECTOR_BYTES as u64 || !bytes.is_multiple_of(SECTOR_BYTES as u64) {
        return Err(damaged(&name, "the segment was cut", first, None));
    }
    let mut sector = [0; SECTOR_BYTES];
    read_exact_at(&*file, &mut sector, 0).map_err(Fault::of("read", &name))?;
    let header = check_header(&name, first, cluster, &sector)?;
    Ok(Segment::new(name, header, file, bytes, None))
}

/// Whether a segment names the one before it.
pub(super) fn check_link(before: &Segment, after: &Segment) -> Result<(), Error> {
    if after.header.previous == before.header.first {
        return Ok(());
    }
    let from = before.header.first.max(after.header.previous);
    let to = Some(Position(after.header.first.0 - 1));
    Err(damaged(&after.name, "the segment before this one is missing", from, to))
}

fn check_header(
    name: &str,
    first: Position,
    cluster: ClusterId,
    sector: &[u8],
) -> Result<SegmentHeader, Error> {
    match SegmentHeader::decode(sector) {
        Err(SealFault::NewerVersion(found)) => Err(Error::NewerVersion { file: name.to_owned(), found }),
        Err(_) => Err(damaged(name, "the segment header is damaged", first, None)),
        Ok(header) if header.cluster != cluster => {
            Err(Error::WrongCluster { found: header.cluster, expected: cluster })
        }
        Ok(header) if header.first != first || first.0 == 0 || header.previous >= first => {
            Err(damaged(name, "the segment is not what its name says", first, None))
        }
        Ok(header) => Ok(header),
    }
}

pub(super) fn no_segments() -> Error {
    damaged("the data directory", "every segment is missing", Position(1), None)
}

fn damaged(file: &str, what: &'static str, from: Position, to: Option<Position>) -> Error {
    Damage::new(file, 0, what, from, to).into()
}
