//! The head of a record in a pack.
//!
//! ```text
//!  0  magic "LBR1"        8  data length (u32)    40  hash (32 bytes)
//!  4  space (u8)         12  CRC-32C of the data  72  number of the pack (u32)
//!  5  placement (u8)     16  size (u64)           76  offset in the pack (u32)
//!  6  zero (u16)         24  tenant (16 bytes)    80  CRC-32C of bytes 0 to 79
//! ```
//!
//! Numbers are little-endian. The pack and the offset make a record that was written to the wrong offset, or
//! left over from another file, unreadable. The size is the blob's; the data is the blob itself, or the
//! checksums of the file that holds it.

use super::options::{CHUNK_BYTES, MAX_RECORD_DATA_BYTES};
use crate::{DigestFunction, HASH_BYTES, Origin};

pub(super) const HEADER_BYTES: usize = 84;
const MAGIC: [u8; 4] = *b"LBR1";
const CRC_AT: usize = 80;
/// Larger content has more checksums than a record may hold.
const MAX_SIZE: u64 = MAX_RECORD_DATA_BYTES / 4 * CHUNK_BYTES as u64;

/// What a hash in a record is the name of. Names in different spaces never meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Space {
    Sha256 = 1,
    Blake3 = 2,
    CommittedResult = 3,
    UploadedResult = 4,
    RawEntry = 5,
}

impl Space {
    fn from_code(code: u8) -> Option<Space> {
        [Space::Sha256, Space::Blake3, Space::CommittedResult, Space::UploadedResult, Space::RawEntry]
            .into_iter()
            .find(|space| *space as u8 == code)
    }

    /// The function that the space's hashes are made with, when they are hashes of content.
    pub fn function(self) -> Option<DigestFunction> {
        match self {
            Space::Sha256 => Some(DigestFunction::Sha256),
            Space::Blake3 => Some(DigestFunction::Blake3),
            _ => None,
        }
    }
}

impl From<DigestFunction> for Space {
    fn from(function: DigestFunction) -> Space {
        match function {
            DigestFunction::Sha256 => Space::Sha256,
            DigestFunction::Blake3 => Space::Blake3,
        }
    }
}

impl From<Origin> for Space {
    fn from(origin: Origin) -> Space {
        match origin {
            Origin::Committed => Space::CommittedResult,
            Origin::Uploaded => Space::UploadedResult,
        }
    }
}

/// Where the content is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Placement {
    /// The record's data.
    Pack = 1,
    /// A file of its own; the data is a CRC-32C for each chunk of it.
    File = 2,
    /// Nowhere: earlier records of this name no longer count.
    Removed = 3,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub space: Space,
    pub placement: Placement,
    pub data_bytes: u32,
    pub data_crc: u32,
    pub size: u64,
    pub tenant: [u8; 16],
    pub hash: [u8; HASH_BYTES],
    pub pack: u32,
    pub offset: u32,
}

impl Header {
    /// Where the next record begins.
    pub fn end(&self) -> u64 {
        u64::from(self.offset) + self.bytes()
    }

    /// Bytes of the whole record.
    pub fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.data_bytes)
    }

    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.space as u8;
        bytes[5] = self.placement as u8;
        bytes[8..12].copy_from_slice(&self.data_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.data_crc.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        bytes[24..40].copy_from_slice(&self.tenant);
        bytes[40..72].copy_from_slice(&self.hash);
        bytes[72..76].copy_from_slice(&self.pack.to_le_bytes());
        bytes[76..80].copy_from_slice(&self.offset.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The header at the start of `bytes`, if it is one: whole, right, and possible.
    pub fn decode(bytes: &[u8]) -> Option<Header> {
        let bytes: &[u8; HEADER_BYTES] = bytes.get(..HEADER_BYTES)?.try_into().ok()?;
        if bytes[..4] != MAGIC || crc32c::crc32c(&bytes[..CRC_AT]) != u32_at(bytes, CRC_AT) {
            return None;
        }
        let placement = match bytes[5] {
            1 => Placement::Pack,
            2 => Placement::File,
            3 => Placement::Removed,
            _ => return None,
        };
        let header = Header {
            space: Space::from_code(bytes[4])?,
            placement,
            data_bytes: u32_at(bytes, 8),
            data_crc: u32_at(bytes, 12),
            size: u64::from(u32_at(bytes, 16)) | u64::from(u32_at(bytes, 20)) << 32,
            tenant: array_at(bytes, 24),
            hash: array_at(bytes, 40),
            pack: u32_at(bytes, 72),
            offset: u32_at(bytes, 76),
        };
        let is_possible = u64::from(header.data_bytes) <= MAX_RECORD_DATA_BYTES
            && header.size <= MAX_SIZE
            && header.data_bytes == data_bytes(placement, header.size)
            && (placement != Placement::File || header.space.function().is_some());
        is_possible.then_some(header)
    }
}

/// Bytes of a record's data, which follow from the size of the content: the content, or four bytes for each
/// chunk of its file.
pub(super) fn data_bytes(placement: Placement, size: u64) -> u32 {
    match placement {
        Placement::Pack => size as u32,
        Placement::File => size.div_ceil(CHUNK_BYTES as u64) as u32 * 4,
        Placement::Removed => 0,
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[at..at + N]);
    array
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headers() -> impl Strategy<Value = Header> {
        (
            any::<[u8; 32]>(),
            any::<[u8; 16]>(),
            0..MAX_RECORD_DATA_BYTES as u32,
            any::<[u32; 3]>(),
            1..=5u8,
            1..=3u8,
        )
            .prop_map(|(hash, tenant, data_bytes, [data_crc, pack, offset], space, placement)| {
                let space = Space::from_code(space).unwrap();
                let (placement, data_bytes, size) = match placement {
                    2 if space.function().is_some() => {
                        let size = u64::from(data_crc) << 6;
                        (Placement::File, super::data_bytes(Placement::File, size), size)
                    }
                    3 => (Placement::Removed, 0, 0),
                    _ => (Placement::Pack, data_bytes, u64::from(data_bytes)),
                };
                Header { space, placement, data_bytes, data_crc, size, tenant, hash, pack, offset }
            })
    }

    proptest! {
        #[test]
        fn a_header_decodes_to_what_was_encoded(header in headers()) {
            prop_assert_eq!(Header::decode(&header.encode()), Some(header));
        }

        #[test]
        fn a_flipped_bit_makes_a_header_unreadable(header in headers(), bit in 0..HEADER_BYTES * 8) {
            let mut bytes = header.encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Header::decode(&bytes), None);
        }

        #[test]
        fn any_bytes_decode_to_a_possible_header_or_nothing(mut bytes: [u8; HEADER_BYTES], sealed: bool) {
            if sealed {
                bytes[..4].copy_from_slice(&MAGIC);
                bytes[4] %= 7;
                bytes[5] %= 5;
                let crc = crc32c::crc32c(&bytes[..CRC_AT]);
                bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            }
            if let Some(header) = Header::decode(&bytes) {
                prop_assert!(u64::from(header.data_bytes) <= MAX_RECORD_DATA_BYTES);
                bytes[6..8].fill(0);
                prop_assert!(header.encode()[..CRC_AT] == bytes[..CRC_AT]);
            }
        }
    }

    #[test]
    fn half_a_header_is_none() {
        assert_eq!(Header::decode(&[0; HEADER_BYTES - 1]), None);
    }
}
