//! Seals lines and checks seals: each line ends with a MAC over all of it, which includes the MAC of the line before.

use blake3::Hash;

use super::line::AuditLine;

/// What stands between a line and its MAC.
const SEPARATOR: &str = ",\"mac\":\"";
const END: &str = "\"}";

/// The `prev` of the first line.
pub(crate) const GENESIS: Hash = Hash::from_bytes([0; 32]);

/// The key of the MACs, from the key of the data directory.
pub(crate) struct ChainKey([u8; 32]);

impl ChainKey {
    pub(crate) fn new(lease_key: &[u8; 32]) -> ChainKey {
        ChainKey(blake3::derive_key("lessor 2026 audit trail", lease_key))
    }

    /// The text of a line, with its end, and its MAC.
    pub(crate) fn seal(&self, line: &AuditLine) -> serde_json::Result<(String, Hash)> {
        let object = serde_json::to_string(line)?;
        let body = object.strip_suffix('}').unwrap_or(&object);
        let hash = blake3::keyed_hash(&self.0, body.as_bytes());
        Ok((format!("{body}{SEPARATOR}{hash}{END}\n"), hash))
    }

    /// The MAC of a line, if it is the one that was written with it.
    pub(crate) fn check(&self, text: &str) -> Option<Hash> {
        let (body, sealed) = split(text)?;
        // Hashes of blake3 are compared in constant time.
        (blake3::keyed_hash(&self.0, body.as_bytes()) == sealed).then_some(sealed)
    }
}

/// The line and the MAC that it claims. Neither is checked.
pub(crate) fn parse(text: &str) -> Option<(AuditLine, Hash)> {
    let (body, sealed) = split(text)?;
    let line = serde_json::from_str(&format!("{body}}}")).ok()?;
    Some((line, sealed))
}

fn split(text: &str) -> Option<(&str, Hash)> {
    let (body, rest) = text.rsplit_once(SEPARATOR)?;
    let mac = rest.strip_suffix(END)?;
    // Hexadecimal digits can be written in two ways, and a MAC in one: any change of a line must be found.
    let is_ours = !mac.bytes().any(|digit| digit.is_ascii_uppercase());
    Some((body, Hash::from_hex(mac).ok().filter(|_| is_ours)?))
}
