//! The reserve: the next segment, prepared while the current segment is in use.
//!
//! Writing and syncing a whole segment of zeros takes long, so a background thread does it. A full disk shows here, one
//! whole segment before an append would fail (D4).

use std::sync::{Arc, Mutex, PoisonError};

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
        let file = atomic::prepare(&*self.disk, names::RESERVE_TEMP, self.segment_bytes)?;
        atomic::publish(&*self.disk, names::RESERVE_TEMP, names::RESERVE)?;
        Ok(file)
    }
}
