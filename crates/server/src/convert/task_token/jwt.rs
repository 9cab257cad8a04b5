//! JSON Web Tokens in the one form that is used here: compact, signed with HMAC-SHA256, with a key id. Nothing else is
//! read: no other algorithm, no header that could choose one, no second spelling of the same token.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Longest token that is looked at. The names in it are bounded, so none of ours is nearly as long.
pub(super) const MAX_TOKEN_BYTES: usize = 8 * 1_024;

const ALGORITHM: &str = "HS256";
const TYPE: &str = "JWT";
const BLOCK_BYTES: usize = 64;

pub(super) type Key = [u8; 32];

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
    alg: &'a str,
    typ: &'a str,
    kid: &'a str,
}

/// A token whose signature has not been looked at yet.
pub(super) struct Unverified<'a> {
    kid: String,
    signed: &'a str,
    payload: &'a str,
    signature: Vec<u8>,
}

pub(super) fn sign(kid: &str, key: &Key, payload: &[u8]) -> String {
    let header = serde_json::to_vec(&Header { alg: ALGORITHM, typ: TYPE, kid }).unwrap_or_default();
    let mut token = URL_SAFE_NO_PAD.encode(header);
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(payload, &mut token);
    let signature = mac(key, &token).finalize().into_bytes();
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(signature, &mut token);
    token
}

impl<'a> Unverified<'a> {
    /// Parses a token without checking its signature; none if the token has another form.
    pub(super) fn parse(token: &'a str) -> Option<Unverified<'a>> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        let header = URL_SAFE_NO_PAD.decode(header).ok()?;
        let header: Header = serde_json::from_slice(&header).ok()?;
        if header.alg != ALGORITHM || header.typ != TYPE {
            return None;
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        Some(Unverified { kid: header.kid.to_owned(), signed, payload, signature })
    }

    pub(super) fn kid(&self) -> &str {
        &self.kid
    }

    /// The payload, if the token was signed with this key. The comparison takes the same time wherever they differ.
    pub(super) fn verify(&self, key: &Key) -> Option<Vec<u8>> {
        mac(key, self.signed).verify_slice(&self.signature).ok()?;
        URL_SAFE_NO_PAD.decode(self.payload).ok()
    }
}

/// HMAC pads a short key with zeros to a whole block, so the padded key gives the same MAC. A whole block is never
/// refused, so there is no key to fall back to.
fn mac(key: &Key, signed: &str) -> Hmac<Sha256> {
    let mut block = [0; BLOCK_BYTES];
    block[..key.len()].copy_from_slice(key);
    mac_with_block(block, signed)
}

fn mac_with_block(key: [u8; BLOCK_BYTES], signed: &str) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new(&key.into());
    mac.update(signed.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KEY: Key = [7; 32];

    fn verify(token: &str) -> Option<Vec<u8>> {
        Unverified::parse(token)?.verify(&KEY)
    }

    fn encode(text: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(text)
    }

    /// A token with this header, signed as it should be.
    fn with_header(header: &str) -> String {
        let signed = format!("{}.{}", encode(header), encode("{}"));
        let signature = mac(&KEY, &signed).finalize().into_bytes();
        format!("{signed}.{}", encode(signature))
    }

    #[test]
    fn s1_9_what_was_signed_verifies() {
        let token = sign("k1", &KEY, b"{\"a\":1}");
        assert_eq!(Unverified::parse(&token).unwrap().kid(), "k1");
        assert_eq!(verify(&token).unwrap(), b"{\"a\":1}");
        assert_eq!(Unverified::parse(&token).unwrap().verify(&[8; 32]), None);
    }

    /// The example of RFC 7515, appendix A.1, so that every library reads our tokens.
    #[test]
    fn the_signature_is_that_of_the_standard() {
        let signed = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQog\
                      Imh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let key = URL_SAFE_NO_PAD.decode(key).unwrap();
        let signature = mac_with_block(key.try_into().unwrap(), signed).finalize().into_bytes();
        assert_eq!(encode(signature), "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
    }

    #[test]
    fn x1_no_other_algorithm_or_header_is_read() {
        assert!(verify(&with_header(r#"{"alg":"HS256","typ":"JWT","kid":"k1"}"#)).is_some());
        for header in [
            r#"{"alg":"none","typ":"JWT","kid":"k1"}"#,
            r#"{"alg":"None","typ":"JWT","kid":"k1"}"#,
            r#"{"alg":"HS384","typ":"JWT","kid":"k1"}"#,
            r#"{"alg":"RS256","typ":"JWT","kid":"k1"}"#,
            r#"{"alg":"hs256","typ":"JWT","kid":"k1"}"#,
            r#"{"alg":"HS256","typ":"JWT"}"#,
            r#"{"typ":"JWT","kid":"k1"}"#,
            r#"{"alg":"HS256","typ":"JWT","kid":"k1","jwk":{}}"#,
            r#"{"alg":"HS256","alg":"none","typ":"JWT","kid":"k1"}"#,
            r#"{"alg":"HS256","typ":"JWT","kid":1}"#,
            r#"["HS256","JWT","k1","x"]"#,
            "",
        ] {
            assert_eq!(verify(&with_header(header)), None, "{header}");
        }
    }

    #[test]
    fn x1_a_token_without_its_signature_does_not_verify() {
        let token = sign("k1", &KEY, b"{}");
        let (signed, _) = token.rsplit_once('.').unwrap();
        for text in [signed.to_owned(), format!("{signed}."), format!("{token}."), format!("{token}=")] {
            assert_eq!(verify(&text), None, "{text}");
        }
    }

    #[test]
    fn x1_no_changed_character_verifies() {
        let token = sign("k1", &KEY, b"{\"task\":\"t\"}");
        for at in 0..token.len() {
            for other in ["A", "B", ".", "=", "-", " "] {
                let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
                assert!(changed == token || verify(&changed).is_none(), "{changed}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_or_verify(text in ".{0,200}") {
            prop_assert_eq!(verify(&text), None);
        }

        #[test]
        fn nothing_in_three_parts_makes_it_panic_or_verify(
            text in "[A-Za-z0-9_-]{0,60}\\.[A-Za-z0-9_-]{0,60}\\.[A-Za-z0-9_-]{0,60}"
        ) {
            prop_assert_eq!(verify(&text), None);
        }
    }
}
