//! The ledger in memory: the smallest storage backend, for tests and as a model for other backends.
//!
//! The records outlive a [`MemoryLedger`] as long as a [`MemoryStorage`] lives, like files outlive a process. Several
//! writers may be open; the position of a batch fences all writers but the first.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use authority::Time;

use crate::{
    AppendError, Batch, Error, ErrorKind, Hold, Job, Ledger, Position, ProjectionOffsets, Reader, Refusal,
    SnapshotError, SnapshotInfo, SnapshotSink, SnapshotSource, Storage, Visit,
};

/// A trim keeps this many snapshots, and every record after the oldest of them.
const SNAPSHOTS_KEPT: usize = 2;

/// Cheap to clone: clones share their content.
#[derive(Clone, Default)]
pub struct MemoryStorage(Arc<Mutex<Content>>);

#[derive(Default)]
struct Content {
    /// The position before the first record that is kept.
    trimmed: u64,
    records: Vec<Arc<[u8]>>,
    snapshots: Vec<(SnapshotInfo, Arc<[Vec<u8>]>)>,
    trim_is_due: bool,
    holds: Vec<Weak<AtomicU64>>,
    offsets: HashMap<String, Position>,
}

impl MemoryStorage {
    pub fn open(&self) -> Storage {
        Storage { ledger: Box::new(MemoryLedger(self.clone())), offsets: Arc::new(self.clone()) }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes old snapshots, and the records that neither a snapshot nor a hold needs.
    fn trim(&self) {
        let mut content = self.content();
        let Some(surplus) = content.snapshots.len().checked_sub(SNAPSHOTS_KEPT) else { return };
        content.snapshots.drain(..surplus);
        let held =
            content.holds.iter().filter_map(Weak::upgrade).map(|from| from.load(Ordering::Acquire) - 1);
        let floor = held.chain([content.snapshots[0].0.begin.0]).min().unwrap_or(0);
        let count = floor.saturating_sub(content.trimmed) as usize;
        content.records.drain(..count);
        content.trimmed += count as u64;
    }
}

impl Content {
    fn first(&self) -> Position {
        Position(self.trimmed + 1)
    }

    fn next(&self) -> Position {
        Position(self.trimmed + self.records.len() as u64 + 1)
    }

    fn record(&self, position: Position) -> Option<Arc<[u8]>> {
        let index = position.0.checked_sub(self.trimmed + 1)?;
        self.records.get(index as usize).cloned()
    }
}

/// A writer of a [`MemoryStorage`].
pub struct MemoryLedger(MemoryStorage);

impl Ledger for MemoryLedger {
    fn next(&self) -> Position {
        self.0.content().next()
    }

    fn append(&mut self, batch: &Batch) -> Result<(), AppendError> {
        let mut content = self.0.content();
        let (expected, found) = (content.next(), batch.first());
        if expected != found {
            return Err(Refusal::Fenced { expected, found }.into());
        }
        content.records.extend(batch.records().map(|(_, record)| Arc::from(record)));
        Ok(())
    }

    fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError> {
        Ok(Box::new(Sink { storage: self.0.clone(), begin, blocks: Vec::new() }))
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.0.clone())
    }

    fn tend(&mut self, _now: Time) -> Option<Job> {
        let is_due = std::mem::take(&mut self.0.content().trim_is_due);
        let storage = self.0.clone();
        is_due.then(|| Job::new("lessor-trim", move || storage.trim()))
    }
}

impl Reader for MemoryStorage {
    fn first(&self) -> Result<Position, Error> {
        Ok(self.content().first())
    }

    fn next(&self) -> Result<Position, Error> {
        Ok(self.content().next())
    }

    fn record(&self, position: Position) -> Result<Option<Vec<u8>>, Error> {
        let content = self.content();
        if position >= content.next() {
            return Err(Error::new(ErrorKind::BeyondEnd, format!("position {position} is not durable yet")));
        }
        Ok(content.record(position).map(|record| record.to_vec()))
    }

    fn read(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<(), Error> {
        let first = self.content().first();
        if from < first {
            return Err(Error::trimmed(from, first));
        }
        // Not under the lock: whoever visits may read too.
        for position in (from.0..=to.0).map(Position) {
            let Some(record) = self.content().record(position) else { break };
            if let ControlFlow::Break(()) = visit(position, &record) {
                break;
            }
        }
        Ok(())
    }

    fn snapshots(&self) -> Result<Vec<SnapshotInfo>, Error> {
        Ok(self.content().snapshots.iter().map(|(info, _)| info.clone()).collect())
    }

    fn load_snapshot(&self, info: &SnapshotInfo) -> Result<Box<dyn SnapshotSource>, Error> {
        let content = self.content();
        let found = content.snapshots.iter().find(|(known, _)| known == info).cloned();
        let (info, blocks) =
            found.ok_or_else(|| Error::new(ErrorKind::Unavailable, "the snapshot is gone"))?;
        Ok(Box::new(Source { info, blocks, next: 0 }))
    }

    fn hold(&self, _name: &str, from: Position) -> Result<Box<dyn Hold>, Error> {
        let hold = Arc::new(AtomicU64::new(from.0));
        self.content().holds.push(Arc::downgrade(&hold));
        Ok(Box::new(MemoryHold(hold)))
    }
}

impl ProjectionOffsets for MemoryStorage {
    fn load(&self, projection: &str) -> Result<Option<Position>, Error> {
        Ok(self.content().offsets.get(projection).copied())
    }

    fn save(&self, projection: &str, applied_up_to: Position) -> Result<(), Error> {
        self.content().offsets.insert(projection.to_owned(), applied_up_to);
        Ok(())
    }
}

struct MemoryHold(Arc<AtomicU64>);

impl Hold for MemoryHold {
    fn advance(&self, from: Position) -> Result<(), Error> {
        self.0.fetch_max(from.0, Ordering::AcqRel);
        Ok(())
    }
}

struct Sink {
    storage: MemoryStorage,
    begin: Position,
    blocks: Vec<Vec<u8>>,
}

impl SnapshotSink for Sink {
    fn write_block(&mut self, block: &[u8]) -> Result<(), SnapshotError> {
        self.blocks.push(block.to_vec());
        Ok(())
    }

    fn finish(self: Box<Self>, end: Position) -> Result<(), SnapshotError> {
        let mut content = self.storage.content();
        let durable = Position(content.next().0 - 1);
        if end > durable {
            return Err(SnapshotError::NotDurable { end, durable });
        }
        if self.begin > end {
            return Err(SnapshotError::BeginsAfterEnd { begin: self.begin, end });
        }
        let name = format!("snapshot {} to {end}", self.begin);
        content.snapshots.push((SnapshotInfo { begin: self.begin, end, name }, self.blocks.into()));
        content.trim_is_due = true;
        Ok(())
    }
}

struct Source {
    info: SnapshotInfo,
    blocks: Arc<[Vec<u8>]>,
    next: usize,
}

impl SnapshotSource for Source {
    fn begin(&self) -> Position {
        self.info.begin
    }

    fn end(&self) -> Position {
        self.info.end
    }

    fn next_block(&mut self, block: &mut Vec<u8>) -> Result<bool, Error> {
        let Some(next) = self.blocks.get(self.next) else { return Ok(false) };
        block.clear();
        block.extend_from_slice(next);
        self.next += 1;
        Ok(true)
    }
}
