//! A snapshot taken in slices between batches: the writer never stalls and memory never doubles.

use authority::Position;
use ledger::record::snapshot::Slices;

use super::{Engine, ReplyTo};

/// How long the writer may be kept by one slice.
#[derive(Clone, Copy, Debug)]
pub struct SliceSize {
    /// A slice ends when it holds this much.
    pub bytes: usize,
    /// A slice visits this many slots at most, also when they are empty.
    pub slots: u32,
}

impl Default for SliceSize {
    fn default() -> Self {
        SliceSize { bytes: 256 << 10, slots: 2_048 }
    }
}

/// A part of a snapshot.
pub struct Slice {
    pub block: Vec<u8>,
    /// Set in the last slice: nothing in the snapshot is newer than this.
    pub end: Option<Position>,
}

impl<T: ReplyTo> Engine<T> {
    /// Takes smaller or larger slices than usual from now on.
    pub fn set_slice_size(&mut self, size: SliceSize) {
        self.slice_size = size;
    }

    /// Begins a snapshot. Returns the position that replay goes on from, and the first block.
    pub fn begin_snapshot(&mut self) -> (Position, Vec<u8>) {
        let mut block = Vec::new();
        self.snapshot = Some(Slices::begin(&self.state, &mut block));
        (self.state.position(), block)
    }

    /// The next part of the snapshot that was begun, if one was.
    pub fn snapshot_slice(&mut self) -> Option<Slice> {
        let slices = self.snapshot.as_mut()?;
        let SliceSize { bytes, slots } = self.slice_size;
        let mut block = Vec::with_capacity(bytes);
        slices.next(&self.state, slots, bytes, &mut block);
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
