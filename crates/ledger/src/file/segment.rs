//! The segment: a preallocated file of frames, between a header sector and a seal sector.
//!
//! The header is durable before the file gets its name, so a named segment without a sound header is
//! damaged. The seal is written when the next segment exists, so a sealed segment without a successor says
//! that the successor is lost (D14).

use super::frame::{FORMAT_VERSION, SECTOR_BYTES, is_blank, u16_at, u32_at, u64_at};
use crate::{ClusterId, Position};

/// Header, seal, and room for at least two small frames.
pub const MIN_SEGMENT_BYTES: u64 = 4 * SECTOR_BYTES as u64;

const HEADER_MAGIC: [u8; 4] = *b"LSEG";
const SEAL_MAGIC: [u8; 4] = *b"LEND";
const VERSION_AT: usize = 4;
const CLUSTER_AT: usize = 8;
const FIRST_AT: usize = 24;
const PREVIOUS_AT: usize = 32;
const TIME_AT: usize = 40;
const CHAIN_AT: usize = 48;
const CRC_AT: usize = SECTOR_BYTES - 4;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SectorFault {
    Blank,
    Damaged,
    NewerVersion(u16),
}

impl SegmentHeader {
    pub(super) fn encode(&self) -> [u8; SECTOR_BYTES] {
        let mut sector = start(HEADER_MAGIC, self.cluster);
        sector[FIRST_AT..][..8].copy_from_slice(&self.first.0.to_le_bytes());
        sector[PREVIOUS_AT..][..8].copy_from_slice(&self.previous.0.to_le_bytes());
        sector[TIME_AT..][..8].copy_from_slice(&self.time_ms.to_le_bytes());
        sector[CHAIN_AT..][..4].copy_from_slice(&self.chain.to_le_bytes());
        finish(sector)
    }

    pub(super) fn decode(sector: &[u8]) -> Result<Self, SectorFault> {
        check(sector, HEADER_MAGIC)?;
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
        let mut sector = start(SEAL_MAGIC, self.cluster);
        sector[FIRST_AT..][..8].copy_from_slice(&self.first.0.to_le_bytes());
        sector[PREVIOUS_AT..][..8].copy_from_slice(&self.next.0.to_le_bytes());
        sector[CHAIN_AT..][..4].copy_from_slice(&self.chain.to_le_bytes());
        finish(sector)
    }

    pub(super) fn decode(sector: &[u8]) -> Result<Self, SectorFault> {
        check(sector, SEAL_MAGIC)?;
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

fn start(magic: [u8; 4], cluster: ClusterId) -> [u8; SECTOR_BYTES] {
    let mut sector = [0; SECTOR_BYTES];
    sector[..4].copy_from_slice(&magic);
    sector[VERSION_AT..][..2].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    sector[CLUSTER_AT..FIRST_AT].copy_from_slice(&cluster.0);
    sector
}

fn finish(mut sector: [u8; SECTOR_BYTES]) -> [u8; SECTOR_BYTES] {
    let crc = crc32c::crc32c(&sector[..CRC_AT]);
    sector[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    sector
}

fn check(sector: &[u8], magic: [u8; 4]) -> Result<(), SectorFault> {
    if is_blank(sector) {
        return Err(SectorFault::Blank);
    }
    if sector.len() != SECTOR_BYTES
        || sector[..4] != magic
        || u32_at(sector, CRC_AT) != crc32c::crc32c(&sector[..CRC_AT])
    {
        return Err(SectorFault::Damaged);
    }
    match u16_at(sector, VERSION_AT) {
        version if version > FORMAT_VERSION => Err(SectorFault::NewerVersion(version)),
        _ => Ok(()),
    }
}

fn cluster(sector: &[u8]) -> ClusterId {
    let mut id = [0; 16];
    id.copy_from_slice(&sector[CLUSTER_AT..FIRST_AT]);
    ClusterId(id)
}
