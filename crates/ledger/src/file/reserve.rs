//! The reserve: the next segment, prepared while the current segment is in use.
//!
//! Writing and syncing a whole segment of zeros takes long, so a background thread does it. A full disk shows here, one
//! whole segment before an append would fail (D4).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disk::{Disk, File};

use super::{atomic, error::Fault, names};

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

/// Prepares the next segment for the ledger. Blocks; holds nothing that an append needs. A job that ends without a
/// result, because its thread could not be started or panicked, counts as failed, so that it is tried again.
pub struct ReserveJob {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) segment_bytes: u64,
    pub(super) preallocate_bytes: u64,
    pub(super) state: Arc<Mutex<ReserveState>>,
    /// Whether the state says how the job ended.
    pub(super) has_ended: bool,
}

impl ReserveJob {
    pub fn run(mut self) -> Result<(), Fault> {
        let prepared = self.prepare();
        self.has_ended = true;
        let mut state = self.state();
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

    fn state(&self) -> MutexGuard<'_, ReserveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn prepare(&self) -> Result<Arc<dyn File>, Fault> {
        let (bytes, preallocate) = (self.segment_bytes, self.preallocate_bytes);
        let file = atomic::prepare(&*self.disk, names::RESERVE_TEMP, bytes, preallocate)?;
        atomic::publish(&*self.disk, names::RESERVE_TEMP, names::RESERVE)?;
        Ok(file)
    }
}

impl Drop for ReserveJob {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut state = self.state();
            (state.in_progress, state.failed) = (false, true);
        }
    }
}
