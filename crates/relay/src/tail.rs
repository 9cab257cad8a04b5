//! The stream of an owner's batches to a standby, at both of its ends.

use std::sync::{Arc, Mutex, PoisonError};

use coordinator::Inbound;
use ledger::Position;
use ledger::postgres::{Fed, Feed, Kept, Place, Receipts};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;

use crate::connection::Outbox;
use crate::frame::{Downward, Upward};

/// The standby's end.
pub(crate) struct Receiving {
    kept: Kept,
    /// Dropped when the stream has ended.
    _open: oneshot::Sender<()>,
}

impl Receiving {
    /// Also returns what is closed when the stream has ended.
    pub(crate) fn new(kept: Kept) -> (Receiving, oneshot::Receiver<()>) {
        let (open, ended) = oneshot::channel();
        (Receiving { kept, _open: open }, ended)
    }

    /// Takes in a frame of the owner, and acknowledges it. False when the stream cannot go on.
    pub(crate) fn receive(&self, frame: Downward, outbox: &Outbox) -> bool {
        match frame {
            Downward::Batch { epoch, before, batch } => {
                if !self.kept.receive(epoch, before, batch.into()) {
                    return false;
                }
                let end = self.kept.end().map_or(Position::ZERO, |end| end.next);
                outbox.send_small(Upward::Received { next: end }.encode())
            }
            Downward::Durable { epoch, next, now } => {
                self.kept.durable(epoch, next, now);
                true
            }
            _ => false,
        }
    }
}

/// The owner's end of the stream on one connection, if there is one.
#[derive(Default)]
pub(crate) struct Sending {
    task: Option<AbortOnDropHandle<()>>,
    receipts: Arc<Mutex<Option<Receipts>>>,
}

impl Sending {
    /// Begins a stream, in place of an earlier one.
    pub(crate) fn begin(
        &mut self,
        feed: Feed,
        node: Arc<str>,
        (epoch, after): (u64, Place),
        inbound: Inbound,
        outbox: Outbox,
    ) {
        self.task = None;
        let receipts = self.receipts.clone();
        let task = tokio::spawn(async move {
            let mut subscription = feed.subscribe(&node, epoch, after).await;
            *receipts.lock().unwrap_or_else(PoisonError::into_inner) = Some(subscription.receipts());
            // Waits for memory in the outbox. A standby that is too slow loses its place in the feed meanwhile.
            while let Some(fed) = subscription.next().await {
                let epoch = subscription.epoch();
                let frame = match fed {
                    Fed::Batch(before, row) => Downward::Batch { epoch, before, batch: row.into() },
                    Fed::Durable(next) => match inbound.now_if_owner() {
                        Some(now) => Downward::Durable { epoch, next, now },
                        None => continue,
                    },
                };
                if !outbox.send(frame.encode()).await {
                    return;
                }
            }
            tracing::info!(%node, "a standby is no longer fed; it reads from the database");
            outbox.send_small(Downward::TailEnd {}.encode());
        });
        self.task = Some(AbortOnDropHandle::new(task));
    }

    /// The standby takes no more batches. The next one by rank is fed from now on.
    pub(crate) fn end(&mut self) {
        self.task = None;
        *self.receipts.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The standby holds everything before `next`.
    pub(crate) fn received(&self, next: Position) {
        if let Some(receipts) = &*self.receipts.lock().unwrap_or_else(PoisonError::into_inner) {
            receipts.received(next);
        }
    }
}
