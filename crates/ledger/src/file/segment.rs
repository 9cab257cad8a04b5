//! The segment: a preallocated file of frames, between a header sector and a seal sector.
//!
//! The header is durable before the file gets its name, so a named segment without a sound header is
//! damaged. The seal is written when the next segment exists, so a sealed segment without a successor says
//! that the successor is lost (D14).

use super::frame::SECTOR_BYTES;
use super::sealed::{self, SealFault, put, u32_at, u64_at};
use crate::{ClusterId, Position};

/// Header, seal, and at least two small frames.
pub const MIN_SEGMENT_BYTES: u64 = 4 * SECTOR_BYTES as u64;

const HEADER_MAGIC: [u8; 4] = *b"LSEG";
const SEAL_MAGIC: [u8; 4] = *b"LEND";
const CLUSTER_AT: usize = 8;
const FIRST_AT: usize = 24;
const PREVIOUS_AT: usize = 32;
const TIME_AT: usize = 40;
const CHAIN_AT: usize = 48;

/// The first sector of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHeader {
    pub cluster: ClusterId,
    pub first: Position,
    /// The first position of the segment before, or 0: a segment missing in between shows (D13).
    pub previous: Position,
    /// The caller's time when the segment was begun, which is when the one before ended.
    pub time_ms: u64,
    /// The checksum of the last frame before this segment.
    pub chain: u32,
}

/// The last sector of a segment that has a successor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    pub cluster: ClusterId,
    pub first: Position,
    /// The first position of the successor.
    pub next: Position,
    pub chain: u32,
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SECTOR_BYTES] {
        encode(HEADER_MAGIC, self.cluster, self.first, self.previous, self.time_ms, self.chain)
    }

    pub(super) fn decode(sector: &[u8]) -> Result<Self, SealFault> {
        sealed::check(sector, SECTOR_BYTES, HEADER_MAGIC)?;
        Ok(Self {
            cluster: cluster(sector),
            first: Position(u64_at(sector, FIRST_AT)),
            previous: Position(u64_at(sector, PREVIOUS_AT)),
            time_ms: u64_at(sector, TIME_AT),
            chain: u32_at(sector, CHAIN_AT),
        })
    }
}

impl Seal {
    pub(super) fn encode(&self) -> [u8; SECTOR_BYTES] {
        encode(SEAL_MAGIC, self.cluster, self.first, self.next, 0, self.chain)
    }

    pub(super) fn decode(sector: &[u8]) -> Result<Self, SealFault> {
        sealed::check(sector, SECTOR_BYTES, SEAL_MAGIC)?;
        Ok(Self {
            cluster: cluster(sector),
            first: Position(u64_at(sector, FIRST_AT)),
            next: Position(u64_at(sector, PREVIOUS_AT)),
            chain: u32_at(sector, CHAIN_AT),
        })
    }
}

/// The chain value with which the history of a cluster begins.
pub(super) fn first_chain(cluster: ClusterId) -> u32 {
    crc32c::crc32c(&cluster.0)
}

/// Header and seal have the same layout; the neighbor of a header is the segment before, that of a seal the one after.
fn encode(
    magic: [u8; 4],
    cluster: ClusterId,
    first: Position,
    neighbor: Position,
    time_ms: u64,
    chain: u32,
) -> [u8; SECTOR_BYTES] {
    let mut sector = [0; SECTOR_BYTES];
    sealed::begin(&mut sector, magic);
    put(&mut sector, CLUSTER_AT, &cluster.0);
    put(&mut sector, FIRST_AT, &first.0.to_le_bytes());
    put(&mut sector, PREVIOUS_AT, &neighbor.0.to_le_bytes());
    put(&mut sector, TIME_AT, &time_ms.to_le_bytes());
    put(&mut sector, CHAIN_AT, &chain.to_le_bytes());
    sealed::seal(&mut sector);
    sector
}

fn cluster(sector: &[u8]) -> ClusterId {
    let mut id = [0; 16];
    id.copy_from_slice(&sector[CLUSTER_AT..FIRST_AT]);
    ClusterId(id)
}
