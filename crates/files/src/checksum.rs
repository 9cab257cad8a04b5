//! The checksum at the end of a small file: a CRC-32C of everything before it, little-endian.

const CRC_BYTES: usize = 4;

/// The content with its checksum.
pub fn append_checksum(content: &[u8]) -> Vec<u8> {
    [content, &crc32c::crc32c(content).to_le_bytes()].concat()
}

/// The content before a checksum; `None` if the checksum is missing or wrong.
pub fn verify_checksum(bytes: &[u8]) -> Option<&[u8]> {
    let (content, crc) = bytes.split_last_chunk::<CRC_BYTES>()?;
    (*crc == crc32c::crc32c(content).to_le_bytes()).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_changed_byte_is_found() {
        let bytes = append_checksum(b"content");
        assert_eq!(verify_checksum(&bytes), Some(&b"content"[..]));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!(verify_checksum(&damaged), None, "byte {at}");
            assert_eq!(verify_checksum(&bytes[..at]), None, "{at} bytes");
        }
    }
}
