//! The messages that wait to be sent to a worker: limited in number, size and time.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;
use tonic::Status;
use wire::grpc::WorkResponse;

/// Longest time that a worker may take no message while there is one for it.
const MAX_STALL: Duration = Duration::from_secs(30);

pub(super) struct Outbox(mpsc::Sender<Result<WorkResponse, Status>>);

/// The worker is gone or reads too slowly.
#[derive(Debug)]
pub(super) struct Closed;

impl Outbox {
    pub(super) fn new(sender: mpsc::Sender<Result<WorkResponse, Status>>) -> Outbox {
        Outbox(sender)
    }

    pub(super) async fn send(&self, message: WorkResponse) -> Result<(), Closed> {
        self.push(Ok(message)).await
    }

    /// Ends the stream.
    pub(super) async fn end(&self, status: Status) {
        let _ = self.push(Err(status)).await;
    }

    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }

    async fn push(&self, message: Result<WorkResponse, Status>) -> Result<(), Closed> {
        match timeout(MAX_STALL, self.0.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Closed),
        }
    }
}
