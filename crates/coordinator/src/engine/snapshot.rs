//! A snapshot taken in slices between batches: the writer never stalls and memory never doubles.

use authority::Position;
use ledger::record::snapshot::Slices;

use super::{Engine, ReplyTo};

/// A slice ends when it holds this much.
const SLICE_BYTES: usize = 256 << 10;
/// A slice looks at this many slots at most, also when they are empty.
const SLICE_SLOTS: u32 = 2_048;

/// A part of a snapshot.
pub struct Slice {
    pub block: Vec<u8>,
    /// Set in the last slice: nothing in the snapshot is newer than this.
    pub end: Option<Position>,
}

impl<T: ReplyTo> Engine<T> {
    /// Begins a snapshot. Returns the position that replay goes on from, and the first block.
    pub fn begin_snapshot(&mut self) -> (Position, Vec<u8>) {
        let mut block = Vec::new();
        self.snapshot = Some(Slices::begin(&self.state, &mut block));
        (self.state.position(), block)
    }

    /// The next part of the snapshot that was begun, if one was.
    pub fn snapshot_slice(&mut self) -> Option<Slice> {
        let slices = self.snapshot.as_mut()?;
        let mut block = Vec::with_capacity(SLICE_BYTES);
        slices.next(&self.state, SLICE_SLOTS, SLICE_BYTES, &mut block);
        let done = slices.is_done();
        if done {
            self.snapshot = None;
        }
        Some(Slice { block, end: done.then(|| self.state.position()) })
    }

    /// Forgets a snapshot that could not be written.
    pub fn abandon_snapshot(&mut self) {
        self.snapshot = None;
    }
}
