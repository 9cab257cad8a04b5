//! The ledger in memory: the smallest storage backend, for tests and as a model for other backends.
//!
//! The records outlive the ledgers that are opened on a [`MemoryStorage`], like files outlive a process. Several writers
//! may be open; the position of a batch fences all writers but the first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use authority::Time;

use crate::hold::Holds;
use crate::{
    AppendError, Batch, Error, ErrorKind, Hold, Job, Ledger, Position, ProjectionOffsets, Reader, Refusal,
    SnapshotError, SnapshotInfo, SnapshotSink, SnapshotSource, Storage, Visit,
};

/// A trim leaves this many snapshots, and every record after the oldest of them.
const SNAPSHOTS_KEPT: usize = 2;

/// Cheap to clone: clones share their content.
#[derive(Clone, Default)]
pub struct MemoryStorage(Arc<Mutex<Content>>);

#[derive(Default)]
struct Content {
    last: Position,
    records: BTreeMap<Position, Arc<[u8]>>,
    snapshots: Vec<(SnapshotInfo, Vec<Vec<u8>>)>,
    trim_is_due: bool,
    holds: Holds,
    offsets: HashMap<String, (Position, u64)>,
}

impl MemoryStorage {
    pub fn open(&self) -> Storage {
        Storage { ledger: Box::new(self.clone()), offsets: Arc::new(self.clone()) }
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes old snapshots, and the records that neither a snapshot nor a hold needs.
    fn trim(&self) {
        let mut content = self.content();
        let Some(surplus) = content.snapshots.len().checked_sub(SNAPSHOTS_KEPT) else { return };
        content.snapshots.drain(..surplus);
        let limit = content.holds.trim_limit(content.snapshots[0].0.begin);
        content.records = content.records.split_off(&limit.next());
    }
}

impl Ledger for MemoryStorage {
    fn next(&self) -> Position {
        self.content().last.next()
    }

    fn append(&mut self, batch: &Batch) -> Result<(), AppendError> {
        let mut content = self.content();
        let (expected, found) = (content.last.next(), batch.first());
        if expected != found {
            return Err(Refusal::Fenced { expected, found }.into());
        }
        content.records.extend(batch.records().map(|(position, record)| (position, record.into())));
        content.last = Position(batch.next().0 - 1);
        Ok(())
    }

    fn begin_snapshot(&self, begin: Position) -> Result<Box<dyn SnapshotSink>, SnapshotError> {
        Ok(Box::new(Sink { storage: self.clone(), begin, blocks: Vec::new() }))
    }

    fn reader(&self) -> Arc<dyn Reader> {
        Arc::new(self.clone())
    }

    fn tend(&mut self, _now: Time) -> Option<Job> {
        let storage = self.clone();
        let is_due = std::mem::take(&mut self.content().trim_is_due);
        is_due.then(|| Job::new("lessor-trim", move || storage.trim()))
    }
}

impl Reader for MemoryStorage {
    fn first(&self) -> Result<Position, Error> {
        let content = self.content();
        Ok(content.records.first_key_value().map_or(content.last.next(), |(first, _)| *first))
    }

    fn next(&self) -> Result<Position, Error> {
        Ok(self.content().last.next())
    }

    fn record(&self, position: Position) -> Result<Option<Vec<u8>>, Error> {
        let content = self.content();
        if position > content.last {
            return Err(Error::new(ErrorKind::BeyondEnd, format!("position {position} is not durable yet")));
        }
        Ok(content.records.get(&position).map(|record| record.to_vec()))
    }

    fn read(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<(), Error> {
        let first = self.first()?;
        if from < first {
            return Err(Error::trimmed(from, first));
        }
        // Not under the lock: the visitor may read too.
        for position in (from.0..=to.0).map(Position) {
            let record = self.content().records.get(&position).cloned();
            if record.is_none_or(|record| visit(position, &record).is_break()) {
                break;
            }
        }
        Ok(())
    }

    fn snapshots(&self) -> Result<Vec<SnapshotInfo>, Error> {
        Ok(self.content().snapshots.iter().map(|(info, _)| info.clone()).collect())
    }

    fn load_snapshot(&self, info: &SnapshotInfo) -> Result<Box<dyn SnapshotSource>, Error> {
        let found = self.content().snapshots.iter().find(|(known, _)| known == info).cloned();
        let (info, blocks) =
            found.ok_or_else(|| Error::new(ErrorKind::Unavailable, "the snapshot is gone"))?;
        Ok(Box::new(Source(info, blocks.into_iter())))
    }

    fn hold(&self, _name: &str, from: Position) -> Result<Box<dyn Hold>, Error> {
        Ok(self.content().holds.hold(from))
    }
}

impl ProjectionOffsets for MemoryStorage {
    fn load(&self, projection: &str) -> Result<Option<Position>, Error> {
        Ok(self.content().offsets.get(projection).map(|(at, _)| *at))
    }

    fn save(&self, projection: &str, applied_up_to: Position, epoch: u64) -> Result<(), Error> {
        let offsets = &mut self.content().offsets;
        if offsets.get(projection).is_none_or(|(_, saved)| *saved <= epoch) {
            offsets.insert(projection.to_owned(), (applied_up_to, epoch));
        }
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

    fn finish(self: Box<Self>, end: Position) -> Result<SnapshotInfo, SnapshotError> {
        let Sink { storage, begin, blocks } = *self;
        let mut content = storage.content();
        SnapshotError::check(begin, end, content.last.next())?;
        let info = SnapshotInfo { begin, end, name: format!("snapshot {begin} to {end}") };
        content.snapshots.push((info.clone(), blocks));
        content.trim_is_due = true;
        Ok(info)
    }
}

struct Source(SnapshotInfo, std::vec::IntoIter<Vec<u8>>);

impl SnapshotSource for Source {
    fn info(&self) -> &SnapshotInfo {
        &self.0
    }

    fn next_block(&mut self, block: &mut Vec<u8>) -> Result<bool, Error> {
        Ok(self.1.next().map(|next| *block = next).is_some())
    }
}
