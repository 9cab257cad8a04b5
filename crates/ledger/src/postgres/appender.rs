//! The writer of an owner: the append protocol, and the feed of the standbys beside it.

use std::time::Duration;

use super::Error;
use super::append::Writer;
use super::batch_row::{BatchRow, Place};
use super::batch_table::BatchTable;
use super::feed::{Feed, MAX_RECEIPT, RECEIPT_CONFIRMATION};
use super::kept::Kept;
use super::ledger::epoch_of;
use super::recent::Recent;
use super::rules;
use crate::{AppendError, Batch, Position, Refusal};

/// Has no thread, no clock and no runtime of its own, so that production and a simulator drive the same code.
pub struct Appender<T: BatchTable> {
    writer: Writer<T>,
    feed: Option<Feed>,
    epoch: u64,
    /// A standby holds everything before this position.
    received: Position,
}

/// A batch that the standbys are sent already.
pub struct Prepared {
    pub(super) row: BatchRow,
}

impl<T: BatchTable> Appender<T> {
    /// Appends behind this batch.
    pub fn new(table: T, last: Place) -> Appender<T> {
        Appender { writer: Writer::new(table, last), feed: None, epoch: 0, received: Position::ZERO }
    }

    /// Begins with a session that is open already.
    pub(super) fn set_session(&mut self, session: T::Session) {
        self.writer.set_session(session);
    }

    /// The batches that are appended from now on go to the feed.
    pub fn set_feed(&mut self, feed: Feed) {
        self.feed = Some(feed);
    }

    /// The last batch.
    pub fn last(&self) -> Place {
        self.writer.recent.last()
    }

    /// The batches that could be appended again. The writer holds none any more.
    pub(super) fn take_recent(&mut self) -> Recent {
        let last = self.last();
        std::mem::replace(&mut self.writer.recent, Recent::new(last))
    }

    /// Appends what a standby holds beyond the end of the database. Says whether anything was held, and the database ends with it now.
    pub async fn restore(&mut self, kept: &Kept) -> Result<bool, Error> {
        let held = kept.batches().filter(|_| rules::appends_again(true));
        let Some((recent, durable)) = held else { return Ok(false) };
        let found = std::mem::replace(&mut self.writer.recent, recent).last();
        let is_restored = self.writer.restore(durable).await?;
        if !is_restored {
            self.writer.recent = Recent::new(found);
        }
        Ok(is_restored)
    }

    /// Holds what a standby holds that has read up to the last batch, so that it can be appended again after a failover.
    pub fn hold(&mut self, kept: &Kept) {
        let last = self.last();
        if let Some((recent, _)) = kept.batches().filter(|(recent, _)| recent.last() == last) {
            self.writer.recent = recent;
        }
    }

    /// Whether batches were appended again without their rows in the tables. Nothing writes the tables until the caller says that it
    /// adds these.
    pub fn lacks_rows(&self) -> bool {
        self.writer.lacks_rows
    }

    /// The tables lack something else.
    pub fn set_lacks_rows(&mut self) {
        self.writer.lacks_rows = true;
    }

    pub fn adds_rows(&mut self) {
        self.writer.lacks_rows = false;
        self.forget_tables();
    }

    /// Where batches up to the last one have to be appended again, that is done without their rows: these rest on what a failover
    /// may have undone too.
    pub fn forget_tables(&mut self) {
        self.writer.recent.forget_tables();
    }

    /// Sends a batch to the standbys, which hold it until they know that it is durable.
    pub fn prepare(&mut self, batch: &Batch) -> Result<Prepared, AppendError> {
        let last = self.last();
        if batch.first() != last.next {
            return Err(Refusal::Fenced { expected: last.next, found: batch.first() }.into());
        }
        // Only the first batch of a writer has an epoch.
        let first_epoch = if self.epoch > 0 { None } else { epoch_of(batch) };
        if let Some(epoch) = first_epoch {
            self.epoch = epoch;
            self.feed.iter().for_each(|feed| feed.begin(&self.writer.recent, epoch));
        }
        let row = BatchRow::new(batch, last.link, rules::epoch_to_write(self.epoch, first_epoch.is_some()));
        self.feed.iter().for_each(|feed| feed.publish(&row));
        Ok(Prepared { row })
    }

    /// Makes a batch durable. It is also received by a standby then, if answers wait for one.
    pub async fn append(&mut self, Prepared { row }: Prepared) -> Result<(), AppendError> {
        let next = row.place.next;
        self.writer.append(row).await?;
        self.feed.iter().for_each(|feed| feed.durable(next));
        self.wait_for_receipt().await
    }

    /// Returns when nobody has appended after us, every batch that we know to be durable still is, and a standby has received
    /// all of them, if answers wait for one.
    pub async fn confirm(&mut self) -> Result<(), AppendError> {
        self.writer.confirm().await?;
        self.wait_for_receipt().await
    }

    async fn wait_for_receipt(&mut self) -> Result<(), AppendError> {
        let next = self.last().next;
        let Some(feed) = self.feed.as_ref().filter(|feed| feed.is_serving()) else { return Ok(()) };
        let mut waited = Duration::ZERO;
        while self.received < next {
            if feed.received(next, self.writer.table().pause(RECEIPT_CONFIRMATION)).await {
                self.received = next;
                break;
            }
            waited += RECEIPT_CONFIRMATION;
            if waited >= MAX_RECEIPT {
                feed.note_lack();
            }
            // Another node may own the ledger by now, and wait for this one as its standby. Or a failover has undone the batch.
            self.writer.confirm().await?;
        }
        Ok(())
    }
}

impl<T: BatchTable> Drop for Appender<T> {
    fn drop(&mut self) {
        self.feed.iter().for_each(Feed::end);
    }
}
