//! The facts by which two ledgers are compared.

use std::fmt;

use anyhow::Result;
use history::time_travel::{last, state_at};
use ledger::digest::state_digest;
use ledger::{Batch, ClusterId, Link, Position, Reader};

/// The hash chain over all batches. Equal links stand for equal batches, in the same order, with the same positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub link: Link,
    /// A second chain over the times of the batches, which links do not cover.
    times: Link,
    pub batches: u64,
    pub records: u64,
}

impl Chain {
    pub(super) fn new(cluster: ClusterId) -> Chain {
        let origin = Link::origin(cluster, 0);
        Chain { link: origin, times: origin, batches: 0, records: 0 }
    }

    pub(super) fn add(&mut self, batch: &Batch) {
        self.link = self.link.then_batch(batch);
        self.times = self.times.then(batch.first(), batch.next(), &batch.time_ms().to_le_bytes());
        self.batches += 1;
        self.records += u64::from(batch.count());
    }

    /// The position after the last batch of a ledger that begins at `first`.
    pub(super) fn next(&self, first: Position) -> Position {
        Position(first.0 + self.records)
    }
}

/// Everything that must be equal on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub chain: Chain,
    /// The first position that is kept, and the last one.
    first: Position,
    pub position: Position,
    /// The digest of all tasks, queues and keys at the end.
    pub digest: blake3::Hash,
}

impl Facts {
    pub(super) fn of(reader: &dyn Reader, chain: Chain) -> Result<Facts> {
        let position = last(reader)?;
        let digest = state_digest(&state_at(reader, position, server::reapi::queue_defaults())?);
        Ok(Facts { chain, first: reader.first()?, position, digest })
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} records in {} batches, positions {} to {}, link {}, digest {}",
            self.chain.records, self.chain.batches, self.first, self.position, self.chain.link, self.digest
        )
    }
}
