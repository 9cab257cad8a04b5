//! Verifies the signature of a dispatch.
//!
//! `lessor-signature: t=<unix seconds>,v1=<lowercase hex HMAC-SHA256(secret, "<t>.<raw body>")>`. Signatures are compared
//! in constant time, and old ones are refused, so that an intercepted dispatch cannot be replayed later.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use data_encoding::HEXLOWER;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

pub(crate) const SIGNATURE_HEADER: &str = "lessor-signature";

/// How far the coordinator's clock and this one may differ, including the time in transit.
const MAX_AGE: Duration = Duration::from_secs(300);
const SIGNATURE_BYTES: usize = 32;

/// Checks a signature against each of the secrets: during a rotation both are valid.
pub(crate) fn verify(secrets: &[Vec<u8>], header: &[u8], body: &[u8]) -> Result<(), &'static str> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    verify_at(now.as_secs(), secrets, header, body)
}

pub(crate) fn verify_at(
    now_s: u64,
    secrets: &[Vec<u8>],
    header: &[u8],
    body: &[u8],
) -> Result<(), &'static str> {
    let malformed = "the signature is malformed";
    let header = std::str::from_utf8(header).map_err(|_| malformed)?;
    let (time, signature) = header.split_once(',').ok_or(malformed)?;
    let time = time.strip_prefix("t=").ok_or(malformed)?;
    let signature = signature.strip_prefix("v1=").and_then(decode_hex).ok_or(malformed)?;
    // As it is written in the header: what was signed is the text.
    let sent_s: u64 = time.parse().map_err(|_| malformed)?;
    let is_signed = secrets.iter().fold(false, |found, secret| {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return found };
        mac.update(time.as_bytes());
        mac.update(b".");
        mac.update(body);
        mac.verify_slice(&signature).is_ok() | found
    });
    match (is_signed, now_s.abs_diff(sent_s) <= MAX_AGE.as_secs()) {
        (false, _) => Err("the signature is not made with this secret over this body"),
        (true, false) => Err("the signature is too old, or of the future"),
        (true, true) => Ok(()),
    }
}

fn decode_hex(text: &str) -> Option<[u8; SIGNATURE_BYTES]> {
    HEXLOWER.decode(text.as_bytes()).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u64 = 1_700_000_000;
    /// HMAC-SHA256("0123456789abcdef", "1700000000.{}"), made with another tool.
    const KNOWN: &str = "t=1700000000,v1=e4f8e2ecae2295b2ddb2f0b5584c8275e226c0ebe9b3b819e70156bb67122e3e";

    fn check(now_s: u64, secret: &str, header: &str, body: &str) -> Result<(), &'static str> {
        verify_at(
            now_s,
            &[b"another secret of ours".to_vec(), secret.into()],
            header.as_bytes(),
            body.as_bytes(),
        )
    }

    #[test]
    fn a_signature_is_good_for_its_secret_its_body_and_its_time() {
        assert_eq!(check(NOW_S, "0123456789abcdef", KNOWN, "{}"), Ok(()));
        assert_eq!(check(NOW_S + 300, "0123456789abcdef", KNOWN, "{}"), Ok(()));
        assert!(check(NOW_S, "0123456789abcdeg", KNOWN, "{}").is_err(), "another secret");
        assert!(check(NOW_S, "0123456789abcdef", KNOWN, "{ }").is_err(), "another body");
        assert!(check(NOW_S + 301, "0123456789abcdef", KNOWN, "{}").is_err(), "too old");
        assert!(check(NOW_S - 301, "0123456789abcdef", KNOWN, "{}").is_err(), "of the future");
        let later = KNOWN.replace("1700000000", "1700000001");
        assert!(check(NOW_S, "0123456789abcdef", &later, "{}").is_err(), "another time");
    }

    #[test]
    fn a_malformed_signature_is_refused() {
        for header in ["", "t=1", "t=1,v1=", "t=1,v1=0g", "t=,v1=00", "v1=00,t=1", "t=-1,v1=00", "t=1,v2=00"]
        {
            assert!(check(NOW_S, "0123456789abcdef", header, "{}").is_err(), "{header}");
        }
        assert!(check(NOW_S, "0123456789abcdef", &KNOWN.to_uppercase(), "{}").is_err());
        assert!(check(NOW_S, "0123456789abcdef", &format!("{KNOWN}0"), "{}").is_err());
    }
}
