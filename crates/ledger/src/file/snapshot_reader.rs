//! Reads the blocks of a snapshot that was verified at start.

use super::{
    error::Error,
    snapshot::{SnapshotFault, Walker},
};
use crate::{Damage, Position, SnapshotInfo, SnapshotSource};

pub struct SnapshotReader {
    walker: Walker,
    info: SnapshotInfo,
}

impl SnapshotReader {
    pub(super) fn new(walker: Walker, info: &SnapshotInfo) -> Self {
        Self { walker, info: info.clone() }
    }
}

impl SnapshotSource for SnapshotReader {
    fn info(&self) -> &SnapshotInfo {
        &self.info
    }

    fn next_block(&mut self, block: &mut Vec<u8>) -> Result<bool, crate::Error> {
        Ok(self.walker.next_block(block).map_err(|fault| refusal(&self.info, fault))?)
    }
}

/// A snapshot that verified at start and does not now leaves nothing to fall back to: part of it is loaded.
pub(super) fn refusal(info: &SnapshotInfo, fault: SnapshotFault) -> Error {
    match fault {
        SnapshotFault::Io(fault) => Error::Io(fault),
        SnapshotFault::NewerVersion(found) => Error::NewerVersion { file: info.name.clone(), found },
        SnapshotFault::Damaged { what, offset } => {
            Damage::new(&info.name, offset, what, Position(1), Some(info.end)).into()
        }
    }
}
