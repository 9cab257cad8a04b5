//! Links: a hash chain over the batches of a ledger.
//!
//! A link stands for a batch and everything before it, so two ledgers with the same link have the same history. Where
//! several nodes may write, the link is the fence: a batch is stored only behind the batch that its writer knows.

use std::fmt;

use data_encoding::HEXLOWER;

use crate::{Batch, ClusterId, Position};

/// Keeps links apart from every other use of the hash; a new meaning gets a new number.
const CONTEXT: &str = "lessor 2026 ledger link v1";

/// The hash of a batch and the link before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Link(pub [u8; 16]);

impl Link {
    /// The link before the first batch of a shard.
    pub fn origin(cluster: ClusterId, shard: u32) -> Link {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&cluster.0).update(&shard.to_le_bytes());
        Link::of(&hasher)
    }

    /// The link of the batch that follows this one.
    pub fn then(self, first: Position, next: Position, body: &[u8]) -> Link {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(&self.0).update(&first.0.to_le_bytes()).update(&next.0.to_le_bytes()).update(body);
        Link::of(&hasher)
    }

    pub fn then_batch(self, batch: &Batch) -> Link {
        self.then(batch.first(), batch.next(), batch.body())
    }

    fn of(hasher: &blake3::Hasher) -> Link {
        let mut link = [0; 16];
        hasher.finalize_xof().fill(&mut link);
        Link(link)
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", HEXLOWER.encode_display(&self.0))
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Link({self})")
    }
}
