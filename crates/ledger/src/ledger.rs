//! The traits that a storage backend implements. Everything outside of a backend's own folder depends only on them.
//!
//! `tests/backend/` checks every backend against the same suite.

use std::ops::ControlFlow;
use std::sync::Arc;

use authority::{State, Time};

use crate::{AppendError, Batch, ClusterId, Damage, Error, Link, Position, SnapshotError, WantedChanges};

/// An append-only log of records at consecutive positions, with one writer at a time. Calls block.
pub trait Ledger: Send {
    /// The position that the next batch must start with.
    fn next(&self) -> Position;

    /// Makes a batch durable at exactly its position, or refuses the batch as fenced when that position is taken.
    fn append(&mut self, batch: &Batch) -> Result<(), AppendError>;

    /// Returns when nobody has appended after this writer, and every batch that it knows to be durable still is. Answers
    /// that rest on no new batch wait for this where there are other writers.
    fn confirm(&mut self) -> Result<(), AppendError> {
        Ok(())
    }

    /// The link of the last batch, for backends that keep links.
    fn last_link(&self) -> Option<Link> {
        None
    }

    /// Whether other nodes may append too. A backend whose lock keeps them out needs no confirmation.
    fn has_other_writers(&self) -> bool {
        false
    }

    /// What the backend wants to know of the tasks of each batch.
    fn wants_changes(&self) -> WantedChanges {
        WantedChanges::Nothing
    }

    /// The state that was recovered from all records so far, before the first append. A backend that keeps tables of
    /// tasks adds what they lack.
    fn recovered(&mut self, _state: &State) -> Result<(), Error> {
        Ok(())
    }

    /// For a backend that may wait without end for its storage: makes it return at once, with an unknown outcome.
    fn stop_waiting(&self) -> Option<StopWaiting> {
        None
    }

    /// Starts a snapshot that holds at least the effects of every record up to `begin`.
    fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError>;

    /// Reads beside the writer.
    fn reader(&self) -> Arc<dyn Reader>;

    /// Reads all durable records from `from` on for a recovery, with every check that the backend has.
    fn replay(&self, from: Position, visit: &mut Visit<'_>) -> Result<(), Error> {
        self.reader().read(from, Position(u64::MAX), visit)
    }

    /// How much more can be stored.
    fn space(&self) -> DiskSpace {
        DiskSpace::Plenty
    }

    /// Whether [`Self::space`] is reliable. While it is not, a job decides how much space there is, and an append is
    /// better acknowledged after that job.
    fn is_space_known(&self) -> bool {
        true
    }

    /// Maintenance that is due now, such as trimming or reserving space, to be run on a background thread. Called
    /// until it returns `None`: after a start, an append and a snapshot, and now and then while space is short.
    fn tend(&mut self, _now: Time) -> Option<Job> {
        None
    }
}

/// Ends a wait for the storage. See [`Ledger::stop_waiting`].
pub type StopWaiting = Box<dyn Fn() + Send + Sync>;

/// Receives records in order, until it breaks.
pub type Visit<'a> = dyn FnMut(Position, &[u8]) -> ControlFlow<()> + 'a;

/// Reads a ledger. The reader of an open ledger sees durable records only. A reader that was opened without the ledger,
/// as offline tools do, may see the last batch of a running writer a moment before it is durable.
pub trait Reader: Send + Sync {
    /// The first position that is not trimmed; 1 when nothing was trimmed.
    fn first(&self) -> Result<Position, Error>;

    /// The position after the last record.
    fn next(&self) -> Result<Position, Error>;

    /// One record; `None` when it was trimmed.
    fn record(&self, position: Position) -> Result<Option<Vec<u8>>, Error>;

    /// Visits the records from `from` up to and including `to`, or up to the end where that is earlier. A trimmed
    /// `from` is an error of the kind `Trimmed`.
    fn read(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<(), Error>;

    /// Visits all records from `from` on for a follower, and returns the link of the last one's batch. `after` is the link
    /// that an earlier call has returned: if the storage has another history by now, that is an error of the kind `Forked`.
    /// Backends that keep no links return none.
    fn follow(
        &self,
        from: Position,
        after: Option<Link>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Link>, Error> {
        self.read(from, Position(u64::MAX), visit).map(|()| after)
    }

    /// A position that is not trimmed, such that every record before it was made before `time`. Searches by time start
    /// here.
    fn seek(&self, _time: Time) -> Result<Position, Error> {
        self.first()
    }

    /// The snapshots, oldest first.
    fn snapshots(&self) -> Result<Vec<SnapshotInfo>, Error>;

    fn load_snapshot(&self, info: &SnapshotInfo) -> Result<Box<dyn SnapshotSource>, Error>;

    /// Protects every record from `from` on from being trimmed, as long as the hold lives.
    fn hold(&self, name: &str, from: Position) -> Result<Box<dyn Hold>, Error>;

    /// Checks the storage itself: visits every batch and record, and every damage, until `visit` breaks. A backend that
    /// cannot be damaged visits its records.
    fn inspect(&self, visit: &mut InspectVisit<'_>) -> Result<Inspected, Error> {
        let first = self.first()?;
        let mut inspected = Inspected { next: first, ..Inspected::default() };
        self.read(first, Position(u64::MAX), &mut |position, record| {
            inspected.next = position.next();
            visit(Seen::Record(position, record))
        })?;
        Ok(inspected)
    }

    /// How many bytes an inspection reads at most; 0 when that is unknown.
    fn stored_bytes(&self) -> u64 {
        0
    }
}

/// Receives what an inspection finds, until it breaks.
pub type InspectVisit<'a> = dyn FnMut(Seen<'_>) -> ControlFlow<()> + 'a;

/// Something that an inspection finds.
pub enum Seen<'a> {
    /// A part of the storage that is missing or cannot be read at all. These come first.
    Missing(Damage),
    /// A sound batch; its records follow.
    Batch(StoredBatch<'a>),
    Record(Position, &'a [u8]),
    /// Damage within a part. The inspection goes on behind it, if it can.
    Damage(Damage),
}

/// Where a batch is stored, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredBatch<'a> {
    pub file: &'a str,
    pub offset: u64,
    pub bytes: u64,
    pub first: Position,
    pub count: u32,
    /// The time of the batch on its writer's clock.
    pub time_ms: u64,
}

/// The outcome of an inspection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspected {
    /// The position after the last record that was found.
    pub next: Position,
    pub unfinished: Option<Unfinished>,
    pub cluster: Option<ClusterId>,
    /// The backend's name of the part in which the log begins.
    pub first_part: String,
    /// How many parts of each kind the storage has.
    pub parts: Vec<(&'static str, u64)>,
}

/// A batch at the very end that is not whole: a writer is writing it, or a crash cut it off. It was never acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    pub file: String,
    pub offset: u64,
    /// The position that it begins with.
    pub first: Position,
}

/// Protects records from being trimmed until it is dropped.
pub trait Hold: Send {
    /// Releases all records before `from`.
    fn advance(&self, from: Position) -> Result<(), Error>;
}

/// The part of the log that a snapshot stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotInfo {
    /// Every block contains the effects of all records up to here; replay starts after it.
    pub begin: Position,
    /// No block contains the effect of a record after this position.
    pub end: Position,
    /// The backend's name of the snapshot.
    pub name: String,
}

/// A snapshot that is being stored. Dropping it abandons the snapshot.
pub trait SnapshotSink: Send {
    fn write_block(&mut self, block: &[u8]) -> Result<(), SnapshotError>;
    /// Completes the snapshot. `end` is the last position whose effect any block may hold; it must be durable.
    fn finish(self: Box<Self>, end: Position) -> Result<SnapshotInfo, SnapshotError>;
}

/// A snapshot that is being loaded.
pub trait SnapshotSource: Send {
    fn info(&self) -> &SnapshotInfo;
    /// Reads the next block into `block`; `false` after the last.
    fn next_block(&mut self, block: &mut Vec<u8>) -> Result<bool, Error>;
}

/// Stores positions by name: how far each projection has applied the ledger, and the last record before a clock jump.
pub trait ProjectionOffsets: Send + Sync {
    /// The last position that the projection has applied; `None` when nothing was ever saved.
    fn load(&self, projection: &str) -> Result<Option<Position>, Error>;
    /// Makes the offset durable. A crash leaves the old offset or the new one. Where several nodes share the storage, an
    /// offset of a later epoch stays.
    fn save(&self, projection: &str, applied_up_to: Position, epoch: u64) -> Result<(), Error>;
}

/// How much more can be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskSpace {
    Plenty,
    /// Running work may finish; no new work begins.
    FinishOnly,
    Nothing,
}

/// Maintenance for a background thread. Blocks while it runs, and holds nothing that an append needs.
pub struct Job {
    /// The name for the thread.
    pub name: &'static str,
    pub run: Box<dyn FnOnce() + Send>,
}

impl Job {
    pub fn new(name: &'static str, run: impl FnOnce() + Send + 'static) -> Job {
        Job { name, run: Box::new(run) }
    }
}

/// A ledger that a backend has opened, and the projection offsets beside it.
pub struct Storage {
    pub ledger: Box<dyn Ledger>,
    pub offsets: Arc<dyn ProjectionOffsets>,
}
