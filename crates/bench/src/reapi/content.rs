//! Generates content that no server has seen, cheaply, so that the clients' share of the machine stays small.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use blobs::{Digest, DigestFunction, Hasher};
use bytes::Bytes;

/// Large enough that no compression finds repetitions.
const NOISE_BYTES: usize = 1 << 20;
/// Sizes of small blobs: every one of these once, then again.
const SMALL_BYTES: std::ops::RangeInclusive<u64> = 1_024..=4_096;
/// One message of a stream, as most clients send them.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Generates blobs that are all different. Cheap to clone.
#[derive(Clone)]
pub(super) struct Content {
    noise: Bytes,
    next: Arc<AtomicU64>,
}

impl Content {
    pub(super) fn new() -> Result<Content> {
        let mut noise = vec![0; NOISE_BYTES];
        getrandom::fill(&mut noise)
            .map_err(|error| anyhow::anyhow!("the system has no random numbers: {error}"))?;
        Ok(Content { noise: noise.into(), next: Arc::default() })
    }

    /// A number that was not returned before.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A blob of 1 to 4 KiB.
    pub(super) fn small(&self) -> (Digest, Vec<u8>) {
        let number = self.number();
        let sizes = SMALL_BYTES.end() - SMALL_BYTES.start() + 1;
        // Neighbouring numbers get sizes that are far from one another.
        let size = SMALL_BYTES.start() + number.wrapping_mul(1_009) % sizes;
        let mut content = self.noise[..size as usize].to_vec();
        content[..8].copy_from_slice(&number.to_le_bytes());
        (Digest::of(DigestFunction::Sha256, &content), content)
    }

    /// The common beginning of blobs of this size.
    pub(super) fn beginning(&self, bytes: u64) -> Beginning {
        let (mut pieces, mut hasher) = (Vec::new(), Hasher::new(DigestFunction::Sha256));
        let common = bytes.saturating_sub(8);
        let mut at = 0;
        while at < common {
            let size = (common - at).min(PIECE_BYTES as u64) as usize;
            let start = at as usize % (NOISE_BYTES - PIECE_BYTES + 1);
            let piece = self.noise.slice(start..start + size);
            hasher.update(&piece);
            pieces.push(piece);
            at += size as u64;
        }
        Beginning { pieces, hasher }
    }
}

/// All but the end of a large blob, hashed once for all blobs that share this beginning.
pub(super) struct Beginning {
    pieces: Vec<Bytes>,
    hasher: Hasher,
}

impl Beginning {
    /// The blob that ends in this number, as the pieces that it is sent in.
    pub(super) fn end_in(&self, number: u64) -> (Digest, Vec<Bytes>) {
        let end = Bytes::copy_from_slice(&number.to_le_bytes());
        let mut hasher = self.hasher.clone();
        hasher.update(&end);
        let mut pieces = self.pieces.clone();
        pieces.push(end);
        (hasher.finish(), pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_blobs_are_equal_and_their_digests_are_right() {
        let content = Content::new().unwrap();
        let (one, bytes) = content.small();
        assert_eq!(one, Digest::of(DigestFunction::Sha256, &bytes));
        assert_ne!(one, content.small().0);
        let beginning = content.beginning(3 << 20);
        let ((one, pieces), (other, _)) = (beginning.end_in(1), beginning.end_in(2));
        assert_eq!(one, Digest::of(DigestFunction::Sha256, &pieces.concat()));
        assert_eq!(one.size, 3 << 20);
        assert_ne!(one, other);
    }
}
