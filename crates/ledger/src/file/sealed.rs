//! Structures of fixed size: a magic and perhaps a version first, the CRC-32C of everything before it last.

use super::frame::{FORMAT_VERSION, is_blank};

const VERSION_AT: usize = 4;
const CRC_BYTES: usize = 4;

/// Why bytes are no usable structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SealFault {
    /// All zero: never written.
    Blank,
    /// Written, but not (or no longer) such a structure.
    Damaged,
    /// A sound structure of newer software.
    NewerVersion(u16),
}

/// Writes the magic and the version of a structure.
pub(super) fn begin(bytes: &mut [u8], magic: [u8; 4]) {
    put(bytes, 0, &magic);
    put(bytes, VERSION_AT, &FORMAT_VERSION.to_le_bytes());
}

/// Writes the checksum of a structure that fills `bytes`, and returns it.
pub(super) fn seal(bytes: &mut [u8]) -> u32 {
    let at = bytes.len() - CRC_BYTES;
    let crc = crc32c::crc32c(&bytes[..at]);
    put(bytes, at, &crc.to_le_bytes());
    crc
}

/// Whether `bytes` are filled by a structure with this magic and the right checksum.
pub(super) fn is_sealed(bytes: &[u8], magic: [u8; 4]) -> bool {
    let at = bytes.len() - CRC_BYTES;
    bytes[..4] == magic && u32_at(bytes, at) == crc32c::crc32c(&bytes[..at])
}

/// Checks magic, checksum and version of the structure in the first `length` bytes of a sector or a file.
pub(super) fn check(bytes: &[u8], length: usize, magic: [u8; 4]) -> Result<(), SealFault> {
    if is_blank(bytes) {
        return Err(SealFault::Blank);
    }
    if bytes.len() < length || !is_sealed(&bytes[..length], magic) {
        return Err(SealFault::Damaged);
    }
    match u16::from_le_bytes([bytes[VERSION_AT], bytes[VERSION_AT + 1]]) {
        version if version > FORMAT_VERSION => Err(SealFault::NewerVersion(version)),
        _ => Ok(()),
    }
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..][..value.len()].copy_from_slice(value);
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
