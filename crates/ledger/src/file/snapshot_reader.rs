//! Hands out the blocks of a snapshot that was verified at start.

use super::{
    error::{Damage, Error},
    snapshot::{SnapshotFault, Walker},
};
use crate::{Position, SnapshotInfo};

pub struct SnapshotReader {
    walker: Walker,
    info: SnapshotInfo,
}

impl SnapshotReader {
    pub(super) fn new(walker: Walker, info: SnapshotInfo) -> Self {
        Self { walker, info }
    }

    /// Replay continues after this position.
    pub fn begin(&self) -> Position {
        self.info.begin
    }

    /// No block holds the effect of a later record.
    pub fn end(&self) -> Position {
        self.info.end
    }

    /// How many blocks were read.
    pub fn blocks(&self) -> u64 {
        self.walker.blocks()
    }

    /// Reads the next block into `block`; `false` after the last.
    pub fn next_block(&mut self, block: &mut Vec<u8>) -> Result<bool, Error> {
        self.walker.next_block(block).map_err(|fault| refusal(&self.info, fault))
    }
}

/// A snapshot that verified at start and does not now leaves nothing to fall back to: part of it is loaded.
pub(super) fn refusal(info: &SnapshotInfo, fault: SnapshotFault) -> Error {
    match fault {
        SnapshotFault::Io(fault) => Error::Io(fault),
        SnapshotFault::NewerVersion(found) => Error::NewerVersion { file: info.name.clone(), found },
        SnapshotFault::Damaged { what, offset } => {
            let (from, to) = (Position(1), Some(info.end));
            Error::Damaged(Damage { file: info.name.clone(), offset, what, from, to })
        }
    }
}
