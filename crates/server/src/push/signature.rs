//! The signature by which a target knows that a task came from here, and when.

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// The value of the header `lessor-signature`: the time in seconds, and the HMAC-SHA256 over it and the body.
pub(super) fn signature(secret: &str, unix_s: u64, body: &[u8]) -> String {
    // HMAC takes a key of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.as_bytes()) else { return String::new() };
    mac.update(format!("{unix_s}.").as_bytes());
    mac.update(body);
    let hex = HEXLOWER.encode(&mac.finalize().into_bytes());
    format!("t={unix_s},v1={hex}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with `printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac sixteen-byte-key`.
    #[test]
    fn the_signature_is_the_documented_one() {
        let expected = "t=1700000000,v1=8ef7df12fdfbcf66dbc750a88e4a6d706f663ed4f609a11127682b67f5bf11bb";
        assert_eq!(signature("sixteen-byte-key", 1_700_000_000, b"{\"a\":1}"), expected);
    }
}
