//! The stream of the owner's batches, as a standby follows it.

use std::sync::Arc;

use coordinator::Peer;
use ledger::postgres::Kept;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Follows the stream of one owner until it is dropped.
pub(crate) struct Tail {
    /// Told when the standby has read everything from the database, so that a stream can continue from there.
    caught_up: Arc<Notify>,
    _task: JoinSet<()>,
}

impl Tail {
    /// `peer` owns the ledger at `epoch`.
    pub(crate) fn follow(peer: Arc<dyn Peer>, epoch: u64, kept: Kept) -> Tail {
        let caught_up = Arc::new(Notify::new());
        let mut task = JoinSet::new();
        let wait = caught_up.clone();
        task.spawn(async move {
            loop {
                wait.notified().await;
                let is_lost = peer.tail(epoch, kept.clone()).await;
                kept.stream_ended(is_lost);
            }
        });
        Tail { caught_up, _task: task }
    }

    /// Lets a stream that is not there begin.
    pub(crate) fn caught_up(&self) {
        self.caught_up.notify_one();
    }
}
