//! State that the writer, the readers and the background jobs share: the segments, the snapshots, and how far
//! the log is durable.
//!
//! Every lock here is held for a moment, never over a write or a sync, so no reader can stall the writer.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use disk::{Disk, File};

use super::{frame::SECTOR_BYTES, segment::SegmentHeader};
use crate::{ClusterId, Position, SnapshotInfo, hold::Holds};

/// One entry of the sparse index for about this much of a segment.
pub(super) const INDEX_STRIDE_BYTES: u64 = 16 << 10;

pub(super) struct Shared {
    pub disk: Arc<dyn Disk>,
    pub cluster: ClusterId,
    next: AtomicU64,
    replayed: AtomicU64,
    segments: RwLock<Arc<Vec<Arc<Segment>>>>,
    snapshots: Mutex<Vec<SnapshotInfo>>,
    pub holds: Holds,
    pub snapshot_in_work: AtomicBool,
    pub trim_in_work: AtomicBool,
    /// A snapshot was added, so there may be history to trim.
    pub trim_due: AtomicBool,
}

/// A segment and its open file. The file stays open, so a reader that began before a trim reads to the end.
pub(super) struct Segment {
    pub name: String,
    pub header: SegmentHeader,
    pub file: Arc<dyn File>,
    pub bytes: u64,
    /// `None` until the first search for a position in this segment.
    pub index: Mutex<Option<Index>>,
}

/// Frame starts, about one for each stride, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Index(Vec<(Position, u64)>);

impl Shared {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        cluster: ClusterId,
        next: Position,
        segments: Vec<Arc<Segment>>,
        snapshots: Vec<SnapshotInfo>,
    ) -> Self {
        Self {
            disk,
            cluster,
            next: AtomicU64::new(next.0),
            replayed: AtomicU64::new(0),
            segments: RwLock::new(Arc::new(segments)),
            snapshots: Mutex::new(snapshots),
            holds: Holds::default(),
            snapshot_in_work: AtomicBool::new(false),
            trim_in_work: AtomicBool::new(false),
            trim_due: AtomicBool::new(false),
        }
    }

    /// The position after the last durable record.
    pub(super) fn next(&self) -> Position {
        Position(self.next.load(Ordering::Acquire))
    }

    pub(super) fn set_next(&self, next: Position) {
        self.next.store(next.0, Ordering::Release);
    }

    pub(super) fn replayed(&self) -> Position {
        Position(self.replayed.load(Ordering::Relaxed))
    }

    pub(super) fn set_replayed(&self, position: Position) {
        self.replayed.store(position.0, Ordering::Relaxed);
    }

    pub(super) fn segments(&self) -> Arc<Vec<Arc<Segment>>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds the new last segment; one with the same first position holds no records and gives way.
    pub(super) fn add_segment(&self, segment: Arc<Segment>) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut segments).retain(|other| other.header.first != segment.header.first);
        Arc::make_mut(&mut segments).push(segment);
    }

    pub(super) fn forget_segment(&self, first: Position) {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut segments).retain(|segment| segment.header.first != first);
    }

    /// The usable snapshots, oldest first.
    pub(super) fn snapshots(&self) -> MutexGuard<'_, Vec<SnapshotInfo>> {
        self.snapshots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add_snapshot(&self, info: SnapshotInfo) {
        let mut snapshots = self.snapshots();
        snapshots.retain(|other| other.name != info.name);
        snapshots.push(info);
        snapshots.sort_by_key(|snapshot| (snapshot.end, snapshot.begin));
        self.trim_due.store(true, Ordering::Release);
    }
}

impl Segment {
    pub(super) fn new(
        name: String,
        header: SegmentHeader,
        file: Arc<dyn File>,
        bytes: u64,
        index: Option<Index>,
    ) -> Self {
        Self { name, header, file, bytes, index: Mutex::new(index) }
    }

    /// Where the frames end and the seal sector starts.
    pub(super) fn frames_end(&self) -> u64 {
        self.bytes - SECTOR_BYTES as u64
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Option<Index>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Index {
    /// Notes a frame, unless the last noted one is near.
    pub(super) fn note(&mut self, first: Position, offset: u64) {
        if self.0.last().is_none_or(|(_, noted)| offset - noted >= INDEX_STRIDE_BYTES) {
            self.0.push((first, offset));
        }
    }

    /// A frame at or before the one that holds `position`.
    pub(super) fn find(&self, position: Position) -> Option<(Position, u64)> {
        let after = self.0.partition_point(|(first, _)| *first <= position);
        after.checked_sub(1).map(|at| self.0[at])
    }
}
