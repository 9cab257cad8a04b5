//! The snapshot file: a header, blocks of opaque bytes, a trailer; each with its own checksum.
//!
//! Here are the format and the one function that verifies a whole file. The trailer counts the blocks and
//! chains their checksums, so none can be missing, repeated or exchanged unnoticed.

use std::sync::Arc;

use disk::{File, read_exact_at};

use super::{
    error::Fault,
    frame::FORMAT_VERSION,
    sealed::{self, SealFault, put, u32_at, u64_at},
};
use crate::{ClusterId, Position};

/// One block at most. Bounds what a reader allocates.
pub const MAX_BLOCK_BYTES: usize = 16 << 20;

pub(super) const HEADER_BYTES: usize = 40;
pub(super) const BLOCK_PREFIX_BYTES: usize = 16;
pub(super) const TRAILER_BYTES: usize = 40;

const HEADER_MAGIC: [u8; 4] = *b"LSNP";
const BLOCK_MAGIC: [u8; 4] = *b"LBLK";
const TRAILER_MAGIC: [u8; 4] = *b"LSNE";
const HEADER_CRC_AT: usize = HEADER_BYTES - 4;

/// The end of a complete snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trailer {
    pub begin: Position,
    pub end: Position,
    pub blocks: u64,
    /// The chained checksum of all blocks.
    pub chain: u32,
}

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotFault {
    #[error("{what} at byte {offset}")]
    Damaged { what: &'static str, offset: u64 },
    #[error("it has format version {0}, but this software reads at most version {FORMAT_VERSION}")]
    NewerVersion(u16),
    #[error(transparent)]
    Io(#[from] Fault),
}

/// The header of a snapshot, and its checksum, with which the chain of the blocks begins.
pub(super) fn encode_header(cluster: ClusterId, begin: Position) -> ([u8; HEADER_BYTES], u32) {
    let mut bytes = [0; HEADER_BYTES];
    sealed::begin(&mut bytes, HEADER_MAGIC);
    put(&mut bytes, 8, &cluster.0);
    put(&mut bytes, 24, &begin.0.to_le_bytes());
    let chain = sealed::seal(&mut bytes);
    (bytes, chain)
}

/// The prefix of a block, and the chained checksum after it.
pub(super) fn encode_block_prefix(chain: u32, block: &[u8]) -> ([u8; BLOCK_PREFIX_BYTES], u32) {
    let mut bytes = [0; BLOCK_PREFIX_BYTES];
    bytes[..4].copy_from_slice(&BLOCK_MAGIC);
    bytes[4..8].copy_from_slice(&(block.len() as u32).to_le_bytes());
    let prefix_crc = crc32c::crc32c_append(chain, &bytes[..8]);
    bytes[8..12].copy_from_slice(&prefix_crc.to_le_bytes());
    let chain = crc32c::crc32c_append(prefix_crc, block);
    bytes[12..].copy_from_slice(&chain.to_le_bytes());
    (bytes, chain)
}

impl Trailer {
    pub(super) fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        put(&mut bytes, 0, &TRAILER_MAGIC);
        put(&mut bytes, 4, &self.chain.to_le_bytes());
        put(&mut bytes, 8, &self.begin.0.to_le_bytes());
        put(&mut bytes, 16, &self.end.0.to_le_bytes());
        put(&mut bytes, 24, &self.blocks.to_le_bytes());
        sealed::seal(&mut bytes);
        bytes
    }

    pub(super) fn decode(bytes: &[u8; TRAILER_BYTES]) -> Option<Self> {
        sealed::is_sealed(bytes, TRAILER_MAGIC).then(|| Self {
            chain: u32_at(bytes, 4),
            begin: Position(u64_at(bytes, 8)),
            end: Position(u64_at(bytes, 16)),
            blocks: u64_at(bytes, 24),
        })
    }
}

/// Walks through a snapshot file and checks every byte on the way.
pub(super) struct Walker {
    file: Arc<dyn File>,
    name: String,
    /// Where the trailer starts.
    end: u64,
    offset: u64,
    blocks: u64,
    chain: u32,
    trailer: Trailer,
}

impl Walker {
    /// Checks header and trailer.
    pub(super) fn new(file: Arc<dyn File>, name: &str, cluster: ClusterId) -> Result<Self, SnapshotFault> {
        let length = file.len().map_err(Fault::of("measure", name))?;
        if length < (HEADER_BYTES + TRAILER_BYTES) as u64 {
            return Err(SnapshotFault::Damaged { what: "the file is too short", offset: 0 });
        }
        let mut header = [0; HEADER_BYTES];
        read_exact_at(&*file, &mut header, 0).map_err(Fault::of("read", name))?;
        sealed::check(&header, HEADER_BYTES, HEADER_MAGIC).map_err(|fault| match fault {
            SealFault::NewerVersion(version) => SnapshotFault::NewerVersion(version),
            _ => SnapshotFault::Damaged { what: "the header is damaged", offset: 0 },
        })?;
        if header[8..24] != cluster.0 {
            return Err(SnapshotFault::Damaged { what: "another cluster's id", offset: 8 });
        }
        let end = length - TRAILER_BYTES as u64;
        let mut bytes = [0; TRAILER_BYTES];
        read_exact_at(&*file, &mut bytes, end).map_err(Fault::of("read", name))?;
        let trailer = Trailer::decode(&bytes)
            .filter(|trailer| trailer.begin.0 == u64_at(&header, 24) && trailer.begin <= trailer.end)
            .ok_or(SnapshotFault::Damaged { what: "the trailer is damaged", offset: end })?;
        let chain = u32_at(&header, HEADER_CRC_AT);
        Ok(Self { file, name: name.to_owned(), end, offset: HEADER_BYTES as u64, blocks: 0, chain, trailer })
    }

    pub(super) fn trailer(&self) -> Trailer {
        self.trailer
    }

    /// Reads the next block into `block`; `false` at the end of a complete snapshot.
    pub(super) fn next_block(&mut self, block: &mut Vec<u8>) -> Result<bool, SnapshotFault> {
        let damaged = |what| SnapshotFault::Damaged { what, offset: self.offset };
        let rest = self.end - self.offset;
        if rest == 0 {
            let complete = self.blocks == self.trailer.blocks && self.chain == self.trailer.chain;
            return if complete { Ok(false) } else { Err(damaged("blocks are missing")) };
        }
        if rest < BLOCK_PREFIX_BYTES as u64 {
            return Err(damaged("half a block stands at the end"));
        }
        let mut prefix = [0; BLOCK_PREFIX_BYTES];
        read_exact_at(&*self.file, &mut prefix, self.offset).map_err(Fault::of("read", &self.name))?;
        let prefix_crc = crc32c::crc32c_append(self.chain, &prefix[..8]);
        if prefix[..4] != BLOCK_MAGIC || u32_at(&prefix, 8) != prefix_crc {
            return Err(damaged("the start of a block is damaged"));
        }
        let length = u32_at(&prefix, 4) as usize;
        if length > MAX_BLOCK_BYTES || length as u64 > rest - BLOCK_PREFIX_BYTES as u64 {
            return Err(damaged("a block is longer than the file"));
        }
        block.resize(length, 0);
        read_exact_at(&*self.file, block, self.offset + BLOCK_PREFIX_BYTES as u64)
            .map_err(Fault::of("read", &self.name))?;
        let chain = crc32c::crc32c_append(prefix_crc, block);
        if u32_at(&prefix, 12) != chain {
            return Err(damaged("a block's checksum is wrong"));
        }
        self.offset += (BLOCK_PREFIX_BYTES + length) as u64;
        self.blocks += 1;
        self.chain = chain;
        Ok(true)
    }
}

/// Reads a snapshot from end to end.
pub(super) fn verify(file: Arc<dyn File>, name: &str, cluster: ClusterId) -> Result<Trailer, SnapshotFault> {
    let mut walker = Walker::new(file, name, cluster)?;
    let mut block = Vec::new();
    while walker.next_block(&mut block)? {}
    Ok(walker.trailer())
}
