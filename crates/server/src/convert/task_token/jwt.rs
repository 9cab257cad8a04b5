//! JSON Web Tokens in the one form that is used here: compact, signed with HMAC-SHA256, with a key id. Nothing else is
//! read: no other algorithm, and no header that could choose one.

use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation, decode, decode_header, encode};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::convert::jwt_crypto;

/// Longest token that is looked at. The names in it are bounded, so none of ours is nearly as long.
pub(super) const MAX_TOKEN_BYTES: usize = 8 * 1_024;

pub(super) type Key = [u8; 32];

/// A token whose signature has not been looked at yet.
pub(super) struct Unverified<'a> {
    kid: String,
    token: &'a str,
}

/// None if the claims are not JSON.
pub(super) fn sign(kid: &str, key: &Key, claims: &impl Serialize) -> Option<String> {
    jwt_crypto::install();
    encode(&header(kid), claims, &EncodingKey::from_secret(key)).ok()
}

fn header(kid: &str) -> Header {
    Header { kid: Some(kid.to_owned()), ..Header::new(Algorithm::HS256) }
}

impl<'a> Unverified<'a> {
    /// Parses a token without checking its signature; none if the token has another form.
    pub(super) fn parse(token: &'a str) -> Option<Unverified<'a>> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let found = decode_header(token).ok()?;
        let kid = found.kid.clone()?;
        (found == header(&kid)).then_some(Unverified { kid, token })
    }

    pub(super) fn kid(&self) -> &str {
        &self.kid
    }

    /// The claims, if the token was signed with this key. The comparison takes the same time wherever they differ.
    pub(super) fn verify<C: DeserializeOwned>(&self, key: &Key) -> Option<C> {
        jwt_crypto::install();
        // The caller checks the times, by the coordinator's clock.
        let mut validation = Validation::new(Algorithm::HS256);
        validation.required_spec_claims.clear();
        (validation.validate_exp, validation.validate_aud) = (false, false);
        Some(decode(self.token, &DecodingKey::from_secret(key), &validation).ok()?.claims)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const KEY: Key = [7; 32];

    fn verify(token: &str) -> Option<Value> {
        Unverified::parse(token)?.verify(&KEY)
    }

    fn encode(text: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(text)
    }

    fn mac(key: &[u8], signed: &str) -> String {
        jwt_crypto::install();
        let key = EncodingKey::from_secret(key);
        jsonwebtoken::crypto::sign(signed.as_bytes(), &key, Algorithm::HS256).unwrap()
    }

    /// A token with this header, signed as it should be.
    fn with_header(header: &str) -> String {
        let signed = format!("{}.{}", encode(header), encode("{}"));
        format!("{signed}.{}", mac(&KEY, &signed))
    }

    #[test]
    fn s1_9_what_was_signed_verifies() {
        let token = sign("k1", &KEY, &json!({ "a": 1 })).unwrap();
        assert_eq!(Unverified::parse(&token).unwrap().kid(), "k1");
        assert_eq!(verify(&token).unwrap(), json!({ "a": 1 }));
        assert_eq!(Unverified::parse(&token).unwrap().verify::<Value>(&[8; 32]), None);
    }

    /// The example of RFC 7515, appendix A.1, so that every library reads our tokens.
    #[test]
    fn the_signature_is_that_of_the_standard() {
        let signed = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQog\
                      Imh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let key = URL_SAFE_NO_PAD.decode(key).unwrap();
        assert_eq!(mac(&key, signed), "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
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
        let token = sign("k1", &KEY, &json!({})).unwrap();
        let (signed, _) = token.rsplit_once('.').unwrap();
        for text in [signed.to_owned(), format!("{signed}."), format!("{token}."), format!("{token}=")] {
            assert_eq!(verify(&text), None, "{text}");
        }
    }

    #[test]
    fn x1_no_changed_character_verifies() {
        let token = sign("k1", &KEY, &json!({ "task": "t" })).unwrap();
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
