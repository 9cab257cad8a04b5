//! The changes of durable batches, on their way from the thread that appends to the thread that writes the tables.
//!
//! The thread that appends never waits: a batch that finds no space is skipped, and the ledger has to say later what it changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Instant;

use authority::Position;

use crate::Changes;

/// Most batches that wait to be merged.
const MAX_WAITING: usize = 1_024;

/// The changes of a batch, and the position of its last record.
type Batch = (Changes, Position);

pub(super) struct Sender {
    batches: SyncSender<Batch>,
    skipped: Arc<AtomicU64>,
}

pub(super) struct Queue {
    batches: Receiver<Batch>,
    /// The last record of the newest batch that was skipped. It is stored before any later batch is sent.
    skipped: Arc<AtomicU64>,
}

pub(super) fn queue() -> (Sender, Queue) {
    let (sender, batches) = sync_channel(MAX_WAITING);
    let skipped = Arc::<AtomicU64>::default();
    (Sender { batches: sender, skipped: skipped.clone() }, Queue { batches, skipped })
}

impl Sender {
    pub(super) fn send(&self, changes: &Changes, to: Position) {
        if self.batches.try_send((changes.clone(), to)).is_err() {
            self.skipped.store(to.0, Ordering::Release);
        }
    }
}

impl Queue {
    pub(super) fn receive(&self, until: Instant) -> Result<Batch, RecvTimeoutError> {
        self.batches.recv_timeout(until.saturating_duration_since(Instant::now()))
    }

    /// No batch up to this position counts any more. To be asked after each batch that was received.
    pub(super) fn skipped(&self) -> Position {
        Position(self.skipped.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_finds_no_space_is_skipped_and_named_before_the_next_one() {
        let (sender, queue) = queue();
        let send = |to| sender.send(&Changes::default(), Position(to));
        let receive = || queue.receive(Instant::now()).map(|(_, to)| to.0);
        let max = MAX_WAITING as u64;
        (1..=max).for_each(send);
        assert_eq!(queue.skipped(), Position::ZERO);
        send(max + 1);
        assert_eq!((queue.skipped(), receive()), (Position(max + 1), Ok(1)));
        send(max + 2);
        assert_eq!(queue.skipped(), Position(max + 1), "there was space again");
        let left: Vec<_> = std::iter::from_fn(|| receive().ok()).collect();
        assert!(left.into_iter().eq((2..=max).chain([max + 2])));
        drop(sender);
        assert_eq!(receive(), Err(RecvTimeoutError::Disconnected));
    }
}
