//! Work: all of a worker's side in one stream. The worker says hello, gives credit, beats and reports; it gets as many
//! tasks as it gave credit for, and an answer to each report once it is durable.
//!
//! One batch of reports is decided at a time, and the next message is read when it is answered, so that a worker cannot
//! have more in the server than one message and its credit. What cannot be sent within a time ends the stream. The
//! leases of a stream that ends stay with their worker, except those that never went out.

mod batch;
mod outbox;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use authority::Scope;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};
use wire::grpc::{WorkRequest, WorkResponse};

use crate::app::App;
use crate::edge::auth::Caller;
use crate::edge::grpc_guard::{BodyBudget, Deadline};
use outbox::Outbox;
use stream::Stream;

use super::service;

const OUTBOX_MESSAGES: usize = 4;

/// Begins a stream; all further is said in it.
pub(super) fn open(
    app: &App,
    scope: Scope,
    caller: Caller,
    mut request: Request<Streaming<WorkRequest>>,
) -> Result<ReceiverStream<Result<WorkResponse, Status>>, Status> {
    let permit = app.work_stream(&scope.tenant)?;
    let peer = service::peer(&request);
    let budget = request.extensions_mut().remove::<Arc<BodyBudget>>();
    let deadline = request.extensions().get::<Deadline>().map(|deadline| deadline.0);
    let (sender, receiver) = mpsc::channel(OUTBOX_MESSAGES);
    let (app, outbox, incoming) = (app.clone(), Outbox::new(sender), request.into_inner());
    tokio::spawn(async move {
        let _permit = permit;
        Stream::run(app, (scope, caller, peer), incoming, budget, outbox, deadline).await;
    });
    Ok(ReceiverStream::new(receiver))
}
