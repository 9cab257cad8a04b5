//! The frame: one batch of records as it lies on disk.
//!
//! A frame is a whole number of sectors. Its first sector starts with the header, every other sector with a tag that is
//! never zero, so a sector that was never written differs from a damaged one, and no payload can pass for a header. Decoding trusts nothing: it neither panics nor allocates.

use super::rules;
use super::sealed::{self, SealFault, put, u32_at, u64_at};
use crate::Position;
use crate::batch::{Batch, MAX_BATCH_BYTES, RECORD_PREFIX_BYTES};

/// Disks write this much at once or not at all.
pub const SECTOR_BYTES: usize = 512;
/// The header at the start of a frame's first sector.
pub(super) const HEADER_BYTES: usize = 64;
/// The tag at the start of every further sector.
pub(super) const TAG_BYTES: usize = 4;
/// The version this code writes, and the newest it reads.
pub const FORMAT_VERSION: u16 = 4;

/// The highest bit of its last byte is clear, that of every tag is set: no sector can be taken for both.
const MAGIC: [u8; 4] = *b"LFRM";
const TAG_BITS: u32 = 0x8000_0001;

const FIRST_AT: usize = 8;
const DURABLE_AT: usize = 16;
const TIME_AT: usize = 24;
const COUNT_AT: usize = 32;
const BODY_BYTES_AT: usize = 36;
const CHAIN_AT: usize = 40;
const CHECKSUM_AT: usize = 44;

/// What a frame says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub first: Position,
    /// Everything up to here was durable before this frame was written.
    pub durable: Position,
    /// When the batch was made, on the caller's clock.
    pub time_ms: u64,
    pub count: u32,
    pub body_bytes: u32,
    /// The checksum of the frame before.
    pub chain: u32,
    /// The checksum of this frame: the header up to here, and every byte after the header.
    pub checksum: u32,
}

/// The verdict on the sectors of a frame with a sound header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Soundness {
    Sound,
    /// At least one sector was never written.
    Incomplete,
    /// All sectors were written, but they are not what was written.
    Damaged,
}

impl Header {
    /// Decodes the header at the start of a sector.
    pub(super) fn decode(sector: &[u8]) -> Result<Self, SealFault> {
        sealed::check(sector, HEADER_BYTES, MAGIC)?;
        let header = Self {
            first: Position(u64_at(sector, FIRST_AT)),
            durable: Position(u64_at(sector, DURABLE_AT)),
            time_ms: u64_at(sector, TIME_AT),
            count: u32_at(sector, COUNT_AT),
            body_bytes: u32_at(sector, BODY_BYTES_AT),
            chain: u32_at(sector, CHAIN_AT),
            checksum: u32_at(sector, CHECKSUM_AT),
        };
        // A writer with a sound checksum and absurd content does not exist; do not compute with such numbers.
        let sane = header.durable < header.first
            && header.first.0.checked_add(u64::from(header.count)).is_some()
            && header.body_bytes as usize <= MAX_BATCH_BYTES
            && header.body_bytes as usize >= header.count as usize * RECORD_PREFIX_BYTES;
        if sane { Ok(header) } else { Err(SealFault::Damaged) }
    }

    /// Lays out a batch as its frame in `frame`, whose former content is dropped, and returns the frame's checksum.
    pub(super) fn encode(batch: &Batch, chain: u32, durable: Position, frame: &mut Vec<u8>) -> u32 {
        frame.clear();
        frame.resize(HEADER_BYTES, 0);
        let body = batch.body();
        let (head, rest) = body.split_at(body.len().min(SECTOR_BYTES - HEADER_BYTES));
        frame.extend_from_slice(head);
        for (sector, part) in (1..).zip(rest.chunks(SECTOR_BYTES - TAG_BYTES)) {
            frame.extend_from_slice(&tag(batch.first(), sector));
            frame.extend_from_slice(part);
        }
        frame.resize(frame.len().next_multiple_of(SECTOR_BYTES), 0);
        sealed::begin(frame, MAGIC);
        put(frame, FIRST_AT, &batch.first().0.to_le_bytes());
        put(frame, DURABLE_AT, &durable.0.to_le_bytes());
        put(frame, TIME_AT, &batch.time_ms().to_le_bytes());
        put(frame, COUNT_AT, &batch.count().to_le_bytes());
        // MAX_BATCH_BYTES keeps the length within 32 bits.
        put(frame, BODY_BYTES_AT, &(body.len() as u32).to_le_bytes());
        put(frame, CHAIN_AT, &chain.to_le_bytes());
        let checksum = checksum(frame);
        put(frame, CHECKSUM_AT, &checksum.to_le_bytes());
        sealed::seal(&mut frame[..HEADER_BYTES]);
        checksum
    }

    /// The length of the whole frame on disk.
    pub(super) fn frame_bytes(&self) -> usize {
        frame_bytes(self.body_bytes as usize)
    }

    /// The position after this frame's last record.
    pub(super) fn next(&self) -> Position {
        Position(self.first.0 + u64::from(self.count))
    }

    /// Judges the sectors of this frame. `frame` is exactly [`Self::frame_bytes`] long.
    pub(super) fn judge(&self, frame: &[u8]) -> Soundness {
        if checksum(frame) == self.checksum {
            return Soundness::Sound;
        }
        let is_incomplete = frame.chunks_exact(SECTOR_BYTES).any(is_blank);
        rules::judged(if is_incomplete { Soundness::Incomplete } else { Soundness::Damaged })
    }

    /// Puts the body of a sound frame together in `body`, whose former content is dropped.
    pub(super) fn unpack(&self, frame: &[u8], body: &mut Vec<u8>) {
        body.clear();
        body.extend_from_slice(&frame[HEADER_BYTES..SECTOR_BYTES]);
        for sector in frame.chunks_exact(SECTOR_BYTES).skip(1) {
            body.extend_from_slice(&sector[TAG_BYTES..]);
        }
        body.truncate(self.body_bytes as usize);
    }
}

/// The length on disk of a frame with a body of `body_bytes`.
pub(super) fn frame_bytes(body_bytes: usize) -> usize {
    let further = body_bytes.saturating_sub(SECTOR_BYTES - HEADER_BYTES);
    SECTOR_BYTES * (1 + further.div_ceil(SECTOR_BYTES - TAG_BYTES))
}

/// The tag of a frame's sector. Two bits are always set, so that no single flip makes it zero.
pub(super) fn tag(first: Position, sector: u32) -> [u8; TAG_BYTES] {
    let mixed = first.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        ^ u64::from(sector).wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(17);
    ((mixed >> 32) as u32 | TAG_BITS).to_le_bytes()
}

/// Whether a sector was never written.
pub(super) fn is_blank(sector: &[u8]) -> bool {
    // Word by word: recovery checks every sector of a mostly blank segment.
    let (words, rest) = sector.as_chunks();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&frame[..CHECKSUM_AT]), &frame[HEADER_BYTES..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_single_flip_makes_a_tag_zero_or_a_header() {
        for first in (1..2000).chain([u64::MAX, u64::MAX / 3]) {
            for sector in (1..70).chain([40_000]) {
                let tag = u32::from_le_bytes(tag(Position(first), sector));
                assert!(tag.count_ones() >= 2 && tag & TAG_BITS == TAG_BITS);
            }
        }
        assert_eq!(u32::from_le_bytes(MAGIC) & 0x8000_0000, 0);
    }

    #[test]
    fn a_frame_is_as_long_as_its_body_needs() {
        for (body, sectors) in [(0, 1), (448, 1), (449, 2), (956, 2), (957, 3)] {
            assert_eq!(frame_bytes(body), sectors * SECTOR_BYTES);
        }
    }
}
