//! The batch: records that become durable together, laid out as their frame while they are collected.
//!
//! A record's bytes are copied once, to the place from which they are written.

use super::frame::{self, HEADER_BYTES, Header, MAX_BATCH_BYTES, RECORD_PREFIX_BYTES, SECTOR_BYTES};
use crate::Position;

/// Collects the records of one batch.
#[derive(Debug)]
pub struct BatchBuilder {
    first: Position,
    count: u32,
    body_bytes: usize,
    bytes: Vec<u8>,
}

/// The record would take the batch over [`MAX_BATCH_BYTES`]. The batch is as it was.
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

    fn reuse(first: Position, mut bytes: Vec<u8>) -> Self {
        assert!(first.0 > 0, "positions start at 1");
        bytes.clear();
        bytes.resize(HEADER_BYTES, 0);
        Self { first, count: 0, body_bytes: 0, bytes }
    }

    /// Adds a record and says which position it has.
    pub fn push(&mut self, record: &[u8]) -> Result<Position, BatchFull> {
        if !self.fits(record.len()) {
            return Err(BatchFull { record_bytes: record.len(), body_bytes: self.body_bytes });
        }
        // MAX_BATCH_BYTES keeps the length within 32 bits.
        self.put(&(record.len() as u32).to_le_bytes());
        self.put(record);
        self.body_bytes += RECORD_PREFIX_BYTES + record.len();
        let position = self.next();
        self.count += 1;
        Ok(position)
    }

    /// Whether a record of this length can still be added.
    pub fn fits(&self, record_bytes: usize) -> bool {
        record_bytes.saturating_add(RECORD_PREFIX_BYTES).saturating_add(self.body_bytes) <= MAX_BATCH_BYTES
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
        self.body_bytes
    }

    /// Ends the batch. `time_ms` is the caller's time; it dates the segment, which ages by it.
    pub fn finish(mut self, time_ms: u64) -> Batch {
        self.bytes.resize(self.bytes.len().next_multiple_of(SECTOR_BYTES), 0);
        debug_assert_eq!(self.bytes.len(), frame::frame_bytes(self.body_bytes));
        let Self { first, count, body_bytes, bytes } = self;
        Batch { first, count, body_bytes: body_bytes as u32, time_ms, bytes }
    }

    fn put(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let used = self.bytes.len() % SECTOR_BYTES;
            if used == 0 {
                let sector = (self.bytes.len() / SECTOR_BYTES) as u32;
                self.bytes.extend_from_slice(&frame::tag(self.first, sector));
                continue;
            }
            let (now, later) = data.split_at(data.len().min(SECTOR_BYTES - used));
            self.bytes.extend_from_slice(now);
            data = later;
        }
    }
}

/// Records with consecutive positions, ready to be appended. An empty batch is allowed: its frame vouches
/// for the one before.
#[derive(Debug)]
pub struct Batch {
    first: Position,
    count: u32,
    body_bytes: u32,
    time_ms: u64,
    bytes: Vec<u8>,
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

    pub fn body_bytes(&self) -> usize {
        self.body_bytes as usize
    }

    pub fn time_ms(&self) -> u64 {
        self.time_ms
    }

    /// Calls `visit` with each record, for ledgers that do not store frames.
    pub fn for_each(&self, mut visit: impl FnMut(Position, &[u8])) {
        let mut body = Vec::with_capacity(self.bytes.len());
        self.header(0, Position(0)).unpack(&self.bytes, &mut body);
        for (position, record) in (self.first.0..).zip(frame::records(&body, self.count).flatten()) {
            visit(Position(position), record);
        }
    }

    /// Starts another batch in the memory of this one.
    pub fn into_builder(self, first: Position) -> BatchBuilder {
        BatchBuilder::reuse(first, self.bytes)
    }

    pub(super) fn frame_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Completes the frame; returns it with its checksum.
    pub(super) fn seal(&mut self, chain: u32, durable: Position) -> (&[u8], u32) {
        let header = self.header(chain, durable);
        let checksum = header.seal(&mut self.bytes);
        (&self.bytes, checksum)
    }

    fn header(&self, chain: u32, durable: Position) -> Header {
        Header {
            first: self.first,
            durable,
            time_ms: self.time_ms,
            count: self.count,
            body_bytes: self.body_bytes,
            chain,
            checksum: 0,
        }
    }
}
