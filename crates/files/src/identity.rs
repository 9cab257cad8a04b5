//! The identity file of a directory: what the directory holds, in which format version, and its random id.
//!
//! ```text
//!  0  magic (8 bytes)    12  id (16 bytes)
//!  8  version (u32)      28  CRC-32C of bytes 0 to 27
//! ```
//!
//! Numbers are little-endian. The identity file is the last file that is written when a directory is initialized, and
//! it never changes.

pub const IDENTITY_BYTES: usize = 32;
const VERSION_AT: usize = 8;
const ID_AT: usize = 12;
const CRC_AT: usize = 28;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    pub magic: [u8; 8],
    pub version: u32,
    pub id: [u8; 16],
}

impl Identity {
    pub fn encode(&self) -> [u8; IDENTITY_BYTES] {
        let mut bytes = [0; IDENTITY_BYTES];
        bytes[..VERSION_AT].copy_from_slice(&self.magic);
        bytes[VERSION_AT..ID_AT].copy_from_slice(&self.version.to_le_bytes());
        bytes[ID_AT..CRC_AT].copy_from_slice(&self.id);
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        bytes[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes the whole content of an identity file with this magic; `None` if the content is damaged or of another
    /// kind. The caller decides which versions it reads.
    pub fn decode(magic: [u8; 8], bytes: &[u8]) -> Option<Identity> {
        let bytes: &[u8; IDENTITY_BYTES] = bytes.try_into().ok()?;
        let crc = crc32c::crc32c(&bytes[..CRC_AT]);
        if bytes[..VERSION_AT] != magic || bytes[CRC_AT..] != crc.to_le_bytes() {
            return None;
        }
        let version = u32::from_le_bytes(bytes[VERSION_AT..ID_AT].try_into().ok()?);
        Some(Identity { magic, version, id: bytes[ID_AT..CRC_AT].try_into().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_decoded_as_encoded_and_any_changed_byte_is_damage() {
        let identity = Identity { magic: *b"LESSOR-X", version: 3, id: [7; 16] };
        let bytes = identity.encode();
        assert_eq!(Identity::decode(*b"LESSOR-X", &bytes), Some(identity));
        assert_eq!(Identity::decode(*b"LESSOR-Y", &bytes), None);
        assert_eq!(Identity::decode(*b"LESSOR-X", &bytes[1..]), None);
        for at in 0..IDENTITY_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert_eq!(Identity::decode(*b"LESSOR-X", &damaged), None, "byte {at}");
        }
    }
}
