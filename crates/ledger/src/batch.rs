//! A batch: records with consecutive positions that become durable together, or not at all.
//!
//! A batch does not know its storage backend. Each backend lays out the body as it needs when it appends the batch.

use crate::{Changes, Position};

/// The largest body of a batch: far above what one batch collects, far below what memory holds.
pub const MAX_BATCH_BYTES: usize = 16 << 20;
/// Each record in a body follows its length.
pub(crate) const RECORD_PREFIX_BYTES: usize = 4;

/// Collects the records of one batch.
#[derive(Debug)]
pub struct BatchBuilder {
    first: Position,
    count: u32,
    body: Vec<u8>,
}

/// The record would take the batch over [`MAX_BATCH_BYTES`]. The batch is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch is full: a record of {record_bytes} bytes does not fit beside {body_bytes} bytes")]
pub struct BatchFull {
    pub record_bytes: usize,
    pub body_bytes: usize,
}

impl BatchBuilder {
    /// Starts a batch whose first record will have the position `first`.
    pub fn new(first: Position) -> Self {
        Self::reuse(first, Vec::new())
    }

    fn reuse(first: Position, mut body: Vec<u8>) -> Self {
        assert!(first.0 > 0, "positions start at 1");
        body.clear();
        Self { first, count: 0, body }
    }

    /// Adds a record and returns its position.
    pub fn push(&mut self, record: &[u8]) -> Result<Position, BatchFull> {
        if !self.fits(record.len()) {
            return Err(BatchFull { record_bytes: record.len(), body_bytes: self.body.len() });
        }
        // MAX_BATCH_BYTES keeps the length within 32 bits.
        self.body.extend_from_slice(&(record.len() as u32).to_le_bytes());
        self.body.extend_from_slice(record);
        let position = self.next();
        self.count += 1;
        Ok(position)
    }

    /// Whether a record of this length can still be added.
    pub fn fits(&self, record_bytes: usize) -> bool {
        record_bytes.saturating_add(RECORD_PREFIX_BYTES).saturating_add(self.body.len()) <= MAX_BATCH_BYTES
    }

    pub fn first(&self) -> Position {
        self.first
    }

    /// The position that the next record will have.
    pub fn next(&self) -> Position {
        Position(self.first.0 + u64::from(self.count))
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// Ends the batch. `time_ms` is the time of the batch on the caller's clock; history ages by this time.
    pub fn finish(self, time_ms: u64) -> Batch {
        let Self { first, count, body } = self;
        Batch { first, count, time_ms, body, changes: None }
    }
}

/// Records with consecutive positions, ready to be appended. A batch may be empty.
#[derive(Debug)]
pub struct Batch {
    first: Position,
    count: u32,
    time_ms: u64,
    body: Vec<u8>,
    changes: Option<Box<Changes>>,
}

impl Batch {
    pub fn first(&self) -> Position {
        self.first
    }

    /// The position after the last record.
    pub fn next(&self) -> Position {
        Position(self.first.0 + u64::from(self.count))
    }

    pub fn count(&self) -> u32 {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// All records, each after its length in four bytes, little-endian.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    pub fn body_bytes(&self) -> usize {
        self.body.len()
    }

    /// The records with their positions.
    pub fn records(&self) -> impl Iterator<Item = (Position, &[u8])> {
        (self.first.0..).map(Position).zip(split_body(&self.body, self.count).flatten())
    }

    /// What the batch changes, for a backend that wants to know; see [`crate::Ledger::wants_changes`].
    pub fn changes(&self) -> Option<&Changes> {
        self.changes.as_deref()
    }

    pub fn set_changes(&mut self, changes: Option<Box<Changes>>) {
        self.changes = changes;
    }

    /// Starts another batch in the memory of this batch.
    pub fn into_builder(self, first: Position) -> BatchBuilder {
        BatchBuilder::reuse(first, self.body)
    }
}

/// Splits a body into its records. An item is `None` when the lengths do not add up.
pub(crate) fn split_body(body: &[u8], count: u32) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = Some(body);
    let mut left = count;
    std::iter::from_fn(move || {
        let bytes = rest?;
        if left == 0 {
            rest = None;
            return if bytes.is_empty() { None } else { Some(None) };
        }
        left -= 1;
        let split = bytes.split_first_chunk::<RECORD_PREFIX_BYTES>().and_then(|(prefix, after)| {
            let length = u32::from_le_bytes(*prefix) as usize;
            (length <= after.len()).then(|| after.split_at(length))
        });
        rest = split.map(|(_, after)| after);
        Some(split.map(|(record, _)| record))
    })
}
