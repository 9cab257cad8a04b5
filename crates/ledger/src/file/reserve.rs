//! The reserve: the next segment, prepared while the current one is in use.
//!
//! Writing and syncing a whole segment of zeros takes long, so it is a job that somebody else runs. A disk
//! that is full shows here, one whole segment before an append would fail (D4).

use std::{io::ErrorKind, sync::Arc};

use super::{error::Fault, names};
use crate::disk::{Disk, File};

/// Whether batches can still be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// The next segment is there, or there is no reason to doubt it will be.
    Plenty,
    /// The current segment is the last: no other could be prepared. Take no new work, only finish old.
    ReserveOnly,
    /// The last batch found no place.
    None,
}

/// Prepares the next segment. Blocks; holds nothing that an append needs.
pub struct ReserveJob {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) segment_bytes: u64,
}

/// A prepared segment, to be handed to the ledger.
pub struct Reserved(pub(super) Arc<dyn File>);

impl ReserveJob {
    pub fn run(self) -> Result<Reserved, Fault> {
        let file = prepare(&*self.disk, names::RESERVE_TEMP, self.segment_bytes)?;
        self.disk
            .rename(names::RESERVE_TEMP, names::RESERVE)
            .map_err(Fault::of("rename", names::RESERVE_TEMP))?;
        self.disk.sync_dir().map_err(Fault::of("sync the directory of", names::RESERVE))?;
        Ok(Reserved(file))
    }
}

/// Makes a file of durable zeros under a temporary name, and leaves nothing behind when it cannot.
pub fn prepare(disk: &dyn Disk, name: &'static str, bytes: u64) -> Result<Arc<dyn File>, Fault> {
    match disk.remove(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(Fault::of("remove", name)(error)),
        _ => {}
    }
    let file = disk.create(name).map_err(Fault::of("create", name))?;
    let filled = file
        .allocate(bytes)
        .map_err(Fault::of("allocate", name))
        .and_then(|()| file.sync_data().map_err(Fault::of("sync", name)));
    if let Err(fault) = filled {
        // The first fault is the one to report; a leftover is removed at the next try or start.
        let _ = disk.remove(name);
        return Err(fault);
    }
    Ok(file)
}
