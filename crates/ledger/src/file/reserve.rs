//! The reserve: the next segment, prepared while the current segment is in use.
//!
//! Writing and syncing a whole segment of zeros takes long, so a background thread does it. A full disk shows here, one
//! whole segment before an append would fail (D4).

use std::{
    io::ErrorKind,
    sync::{Arc, Mutex, PoisonError},
};

use super::{error::Fault, names};
use crate::disk::{Disk, File};

/// What is known of the next segment.
#[derive(Default)]
pub(super) struct ReserveState {
    pub ready: Option<Arc<dyn File>>,
    pub in_progress: bool,
    /// The last attempt to prepare a segment failed.
    pub failed: bool,
    /// The last batch found no space.
    pub batch_refused: bool,
}

/// Prepares the next segment for the ledger. Blocks; holds nothing that an append needs.
pub struct ReserveJob {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) segment_bytes: u64,
    pub(super) state: Arc<Mutex<ReserveState>>,
}

impl ReserveJob {
    pub fn run(self) -> Result<(), Fault> {
        let prepared = self.prepare();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match prepared {
            Ok(file) => {
                if state.failed {
                    tracing::info!("there is space again; new work is accepted");
                }
                *state = ReserveState { ready: Some(file), ..ReserveState::default() };
                Ok(())
            }
            Err(fault) => {
                if !state.failed {
                    tracing::error!(%fault, "the next segment could not be prepared; new work is refused until it can");
                }
                (state.in_progress, state.failed) = (false, true);
                Err(fault)
            }
        }
    }

    fn prepare(&self) -> Result<Arc<dyn File>, Fault> {
        let file = prepare(&*self.disk, names::RESERVE_TEMP, self.segment_bytes)?;
        self.disk
            .rename(names::RESERVE_TEMP, names::RESERVE)
            .map_err(Fault::of("rename", names::RESERVE_TEMP))?;
        self.disk.sync_dir().map_err(Fault::of("sync the directory of", names::RESERVE))?;
        Ok(file)
    }
}

/// Makes a file of durable zeros under a temporary name, and leaves nothing behind when it cannot.
pub(super) fn prepare(disk: &dyn Disk, name: &'static str, bytes: u64) -> Result<Arc<dyn File>, Fault> {
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
