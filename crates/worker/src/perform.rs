//! The interface between the agent and the code that runs an attempt.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use wire::grpc::{ActionResult, LeasedTask};

use crate::Failure;
use crate::agent::SlotGuard;
use crate::outputs::KeptOutputs;

/// The end of an attempt.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The result of an action, whatever its exit code.
    Action(Box<ActionResult>),
    Json(Bytes),
    Failed(Failure),
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Outcome {
        Outcome::Failed(failure)
    }
}

#[tonic::async_trait]
pub trait Performer: Send + Sync + 'static {
    /// Runs one attempt; the agent keeps the lease. It ends soon after the permit is canceled and leaves nothing running.
    /// Dropping the future must stop the work too.
    async fn perform(&self, task: LeasedTask, permit: Permit) -> Outcome;

    /// Whether more attempts can begin now, and if not, why. The agent asks regularly.
    async fn fitness(&self) -> Result<(), String> {
        Ok(())
    }

    /// Waits until all earlier attempts are cleaned up.
    async fn settle(&self) {}
}

/// An attempt's permission to run. Its slot stays in use until the last clone is dropped: also after the lease is lost,
/// until the work has stopped.
#[derive(Clone, Debug)]
pub struct Permit {
    /// The parent of `cancel`.
    lost: CancellationToken,
    cancel: CancellationToken,
    slot: Option<Arc<SlotGuard>>,
    outputs: Arc<OnceLock<KeptOutputs>>,
}

impl Permit {
    pub(crate) fn new(slot: Option<SlotGuard>) -> Permit {
        let lost = CancellationToken::new();
        Permit { cancel: lost.child_token(), lost, slot: slot.map(Arc::new), outputs: Arc::default() }
    }

    /// Keeps the outputs until the attempt's report is answered.
    pub(crate) fn keep(&self, outputs: KeptOutputs) {
        // An attempt ends once.
        let _ = self.outputs.set(outputs);
    }

    /// Uploads the outputs again, which the coordinator did not find in the content store.
    pub(crate) async fn upload_again(&self) -> Result<(), Failure> {
        match self.outputs.get() {
            Some(outputs) => outputs.upload().await,
            None => Err(Failure::broken("the outputs are not in the content store, and they are gone here")),
        }
    }

    /// The coordinator wants the work stopped, and a report of it.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Nothing more about the attempt is reported.
    pub(crate) fn lose(&self) {
        self.lost.cancel();
    }

    pub(crate) fn lost(&self) -> &CancellationToken {
        &self.lost
    }

    /// Canceled when the work should stop, for whatever reason.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }

    /// Frees the slot for another task, after the command has ended and while its outputs are uploaded.
    pub fn free(&self) {
        if let Some(slot) = &self.slot {
            slot.free_slot();
        }
    }
}
