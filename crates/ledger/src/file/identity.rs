//! The identity file: which cluster a data directory belongs to.
//!
//! It is the last thing that initialising a directory makes, and it never changes. A directory without it
//! holds no ledger of ours (D26).

use super::frame::{FORMAT_VERSION, u16_at, u32_at};
use crate::ClusterId;

pub const IDENTITY_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"LESSOR-L";
const VERSION_AT: usize = 8;
const CLUSTER_AT: usize = 12;
const CRC_AT: usize = 28;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityFault {
    Damaged,
    NewerVersion(u16),
}

pub fn encode(cluster: ClusterId) -> [u8; IDENTITY_BYTES] {
    let mut bytes = [0; IDENTITY_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[VERSION_AT..][..2].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[CLUSTER_AT..CRC_AT].copy_from_slice(&cluster.0);
    let crc = crc32c::crc32c(&bytes[..CRC_AT]);
    bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Decodes the whole content of an identity file.
pub fn decode(bytes: &[u8]) -> Result<ClusterId, IdentityFault> {
    let bytes: &[u8; IDENTITY_BYTES] = bytes.try_into().map_err(|_| IdentityFault::Damaged)?;
    if bytes[..8] != MAGIC || u32_at(bytes, CRC_AT) != crc32c::crc32c(&bytes[..CRC_AT]) {
        return Err(IdentityFault::Damaged);
    }
    let version = u16_at(bytes, VERSION_AT);
    if version > FORMAT_VERSION {
        return Err(IdentityFault::NewerVersion(version));
    }
    let mut cluster = [0; 16];
    cluster.copy_from_slice(&bytes[CLUSTER_AT..CRC_AT]);
    Ok(ClusterId(cluster))
}
