//! What the agent asks of whoever does the work: one attempt, from its lease to its outcome.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use wire::grpc::ActionResult;

use crate::Failure;
use crate::agent::SlotGuard;

/// One leased task as the work needs it. The lease itself stays with the agent.
#[derive(Clone, Debug)]
pub struct Task {
    pub task_id: String,
    pub attempt: u32,
    pub queue: String,
    /// JSON text.
    pub payload: Bytes,
    /// How long the attempt as a whole may take.
    pub timeout: Option<Duration>,
    /// When it was submitted, by the coordinator's clock.
    pub created_at: Option<SystemTime>,
    /// Higher for every later lease.
    pub fencing_token: u64,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// With the result of an action, whatever its exit code.
    Action(Box<ActionResult>),
    /// With a result in JSON.
    Json(Bytes),
    Failed(Failure),
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Outcome {
        Outcome::Failed(failure)
    }
}

/// Does the work of one attempt.
#[tonic::async_trait]
pub trait Performer: Send + Sync + 'static {
    /// Ends soon after the place is cancelled, with nothing left running. Dropping it must stop the work too.
    async fn perform(&self, task: Task, permit: Permit) -> Outcome;

    /// Whether it can begin more work now, and if not, why. Asked again and again.
    async fn fitness(&self) -> Result<(), String> {
        Ok(())
    }

    /// Waits until what earlier attempts left to be cleaned up is gone.
    async fn settle(&self) {}
}

/// The place that an attempt takes up at its worker, for as long as anybody has it: also when the lease is lost, until
/// the work has stopped.
#[derive(Clone, Debug)]
pub struct Permit {
    cancel: CancellationToken,
    slot: Option<Arc<SlotGuard>>,
}

impl Permit {
    pub(crate) fn new(slot: Option<SlotGuard>) -> Permit {
        Permit { cancel: CancellationToken::new(), slot: slot.map(Arc::new) }
    }

    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
    }

    /// Cancelled when the work should stop, for whatever reason.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancel
    }

    /// The command has ended: the slot may go to another task while the outputs are brought home.
    pub fn free(&self) {
        if let Some(slot) = &self.slot {
            slot.free_slot();
        }
    }
}
