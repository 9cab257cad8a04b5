//! Reads the ledger beside its writer, on any node.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use authority::Time;

use super::Error;
use super::batch_row::{BatchRow, COLUMNS, HOLDS_RECORDS, Place, position};
use super::kept::Kept;
use super::page::visit_rows;
use super::shared::Database;
use super::snapshot::{self, BlockRows};
use crate::{
    Error as LedgerError, ErrorKind, Hold, InspectVisit, Inspected, Link, Position, Reader, Seen,
    SnapshotInfo, SnapshotSource, StoredBatch, Visit,
};

/// The batches of a task's history lie close together, and are read again for each of its records.
const CACHE_BYTES: usize = 64 << 20;

/// Cheap to clone.
#[derive(Clone)]
pub struct PostgresReader {
    database: Database,
    cache: Arc<Mutex<Cache>>,
    kept: Option<Kept>,
}

impl PostgresReader {
    pub fn new(database: Database) -> PostgresReader {
        PostgresReader { database, cache: Arc::default(), kept: None }
    }

    /// The same, and keeps the newest of the batches that are followed.
    pub fn keeping(self, kept: Kept) -> PostgresReader {
        PostgresReader { kept: Some(kept), ..self }
    }

    /// The last batch before a position, if it ends there.
    fn place_before(&self, next: Position) -> Result<Option<Place>, Error> {
        let (shard, before) = (self.database.shard(), next.0 as i64);
        let place = self.database.run(move |session| async move {
            let sql = "SELECT first, next, link FROM lessor.batch WHERE shard = $1 AND first < $2 \
                       ORDER BY first DESC LIMIT 1";
            session.query_opt(sql, &[&shard, &before]).await?.as_ref().map(Place::read).transpose()
        })?;
        Ok(place.filter(|place| place.next == next))
    }

    /// The batch that holds a position; `None` when it is trimmed.
    fn batch(&self, at: Position) -> Result<Option<Arc<Unpacked>>, Error> {
        let cache = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = cache().get(at) {
            return Ok(Some(found));
        }
        let (shard, wanted) = (self.database.shard(), at.0 as i64);
        let row = self.database.run(move |session| async move {
            let sql = format!(
                "SELECT {COLUMNS} FROM lessor.batch WHERE shard = $1 AND first <= $2 AND {HOLDS_RECORDS} \
                 ORDER BY first DESC LIMIT 1"
            );
            session.query_opt(&sql, &[&shard, &wanted]).await?.as_ref().map(BatchRow::read).transpose()
        })?;
        let Some(row) = row.filter(|row| at < row.place.next) else { return Ok(None) };
        let unpacked = Arc::new(Unpacked { body: row.unpack()?, row });
        cache().insert(unpacked.clone());
        Ok(Some(unpacked))
    }

    fn visit(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<Option<Position>, Error> {
        visit_rows(&self.database, from, None, &mut |row, body| {
            for record in row.records(&body) {
                let (position, bytes) = record?;
                if position > to || (position >= from && visit(position, bytes).is_break()) {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(if row.place.next > to { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })
    }
}

impl Reader for PostgresReader {
    fn first(&self) -> Result<Position, LedgerError> {
        let shard = self.database.shard();
        let first = self.database.run(move |session| async move {
            let sql = format!(
                "SELECT first FROM lessor.batch WHERE shard = $1 AND {HOLDS_RECORDS} ORDER BY first LIMIT 1"
            );
            Ok(session.query_opt(&sql, &[&shard]).await?.map(|row| position(row.get(0))))
        })?;
        first.map_or_else(|| self.next(), Ok)
    }

    fn next(&self) -> Result<Position, LedgerError> {
        let readable = self.database.readable();
        if readable < Position(u64::MAX) {
            return Ok(readable);
        }
        let shard = self.database.shard();
        Ok(self.database.run(move |session| async move {
            let sql = "SELECT next FROM lessor.batch WHERE shard = $1 ORDER BY first DESC LIMIT 1";
            let row = session.query_opt(sql, &[&shard]).await?;
            row.map(|row| position(row.get(0)))
                .ok_or_else(|| Error::Damaged("a shard has no batch".to_owned()))
        })?)
    }

    fn record(&self, at: Position) -> Result<Option<Vec<u8>>, LedgerError> {
        if at >= self.next()? {
            return Err(Error::BeyondEnd(at).into());
        }
        let Some(batch) = self.batch(at)? else { return Ok(None) };
        for record in batch.row.records(&batch.body) {
            let (position, bytes) = record?;
            if position == at {
                return Ok(Some(bytes.to_vec()));
            }
        }
        Ok(None)
    }

    fn read(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<(), LedgerError> {
        let to = to.min(Position(self.next()?.0 - 1));
        if from > to {
            return Ok(());
        }
        match self.visit(from, to, visit)? {
            Some(begin) if begin <= from => Ok(()),
            _ => Err(LedgerError::trimmed(from, self.first()?)),
        }
    }

    fn follow(
        &self,
        from: Position,
        after: Option<Link>,
        visit: &mut Visit<'_>,
    ) -> Result<Option<Link>, LedgerError> {
        let end = self.database.readable();
        let mut last = after;
        if let Some(kept) = self.kept.as_ref().filter(|kept| kept.end().is_none())
            && let Some(place) =
                self.place_before(from)?.filter(|place| last.is_none_or(|last| last == place.link))
        {
            kept.begin(place);
            last = Some(place.link);
        }
        let after = last;
        let visited = visit_rows(&self.database, from, after, &mut |row, body| {
            if row.place.next > end {
                return Ok(ControlFlow::Break(()));
            }
            if let Some(kept) = &self.kept {
                kept.found(row, &body)?;
            }
            for record in row.records(&body) {
                let (position, bytes) = record?;
                if position >= from && visit(position, bytes).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            last = Some(row.place.link);
            Ok(ControlFlow::Continue(()))
        });
        match visited.map_err(LedgerError::from) {
            Ok(Some(begin)) if begin > from => Err(LedgerError::trimmed(from, begin)),
            // What was visited counts, with its link. The next call says whether the database can be used again.
            Err(error) if error.kind() == ErrorKind::Unavailable && last != after => Ok(last),
            visited => visited.map(|_| last),
        }
    }

    fn seek(&self, time: Time) -> Result<Position, LedgerError> {
        // Batches are in the order of time, but only their positions have an index: a binary search.
        let (mut low, mut high) = (self.first()?, self.next()?);
        while low.0 + 1 < high.0 {
            let middle = Position(low.0 + (high.0 - low.0) / 2);
            match self.batch(middle)? {
                Some(batch) if (batch.row.at as u64) >= time.0 => high = batch.row.place.first.max(low),
                Some(batch) if batch.row.place.first > low => low = batch.row.place.first,
                Some(batch) => low = batch.row.place.next.min(high),
                None => return self.first(),
            }
        }
        Ok(self
            .batch(low)?
            .filter(|batch| (batch.row.at as u64) < time.0)
            .map_or(self.first()?, |batch| batch.row.place.first))
    }

    fn snapshots(&self) -> Result<Vec<SnapshotInfo>, LedgerError> {
        Ok(snapshot::list(&self.database)?)
    }

    fn load_snapshot(&self, info: &SnapshotInfo) -> Result<Box<dyn SnapshotSource>, LedgerError> {
        Ok(Box::new(BlockRows::open(&self.database, info)?))
    }

    fn hold(&self, _name: &str, from: Position) -> Result<Box<dyn Hold>, LedgerError> {
        Ok(self.database.holds(|holds| holds.hold(from)))
    }

    fn inspect(&self, visit: &mut InspectVisit<'_>) -> Result<Inspected, LedgerError> {
        let first = self.first()?;
        let mut inspected = Inspected {
            next: first,
            cluster: Some(self.database.cluster().id),
            first_part: "lessor.batch".to_owned(),
            ..Inspected::default()
        };
        let mut batches = 0;
        visit_rows(&self.database, first, None, &mut |row, body| {
            batches += 1;
            inspected.next = row.place.next;
            let stored = StoredBatch {
                file: "lessor.batch",
                offset: row.place.first.0,
                bytes: row.body.len() as u64,
                first: row.place.first,
                count: row.count(),
                time_ms: row.at as u64,
            };
            if visit(Seen::Batch(stored)).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            for record in row.records(&body) {
                let (position, bytes) = record?;
                if visit(Seen::Record(position, bytes)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        inspected.parts = vec![("batches", batches)];
        Ok(inspected)
    }

    fn stored_bytes(&self) -> u64 {
        let shard = self.database.shard();
        let bytes = self.database.run(move |session| async move {
            let sql = "SELECT coalesce(sum(length(body)), 0)::int8 FROM lessor.batch WHERE shard = $1";
            Ok(session.query_one(sql, &[&shard]).await?.get::<_, i64>(0))
        });
        // It is only for a progress bar.
        bytes.map_or(0, |bytes| bytes as u64)
    }
}

struct Unpacked {
    row: BatchRow,
    body: Vec<u8>,
}

/// Batches by their first position; the oldest entry goes first.
#[derive(Default)]
struct Cache {
    batches: BTreeMap<Position, Arc<Unpacked>>,
    order: VecDeque<Position>,
    bytes: usize,
}

impl Cache {
    fn get(&self, at: Position) -> Option<Arc<Unpacked>> {
        let (_, batch) = self.batches.range(..=at).next_back()?;
        (at < batch.row.place.next).then(|| batch.clone())
    }

    fn insert(&mut self, batch: Arc<Unpacked>) {
        let first = batch.row.place.first;
        self.bytes += batch.body.len();
        if let Some(old) = self.batches.insert(first, batch) {
            self.bytes -= old.body.len();
        } else {
            self.order.push_back(first);
        }
        while self.bytes > CACHE_BYTES
            && let Some(oldest) = self.order.pop_front()
        {
            self.bytes -= self.batches.remove(&oldest).map_or(0, |batch| batch.body.len());
        }
    }
}
