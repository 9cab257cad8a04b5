//! The public keys of an issuer: a JSON Web Key Set.

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header};
use serde::Deserialize;
use serde_json::Value;

/// Most keys of one set. Issuers have a handful.
const MAX_KEYS: usize = 100;

#[derive(Debug)]
pub(crate) struct KeySet(Vec<PublicKey>);

#[derive(Debug)]
struct PublicKey {
    id: Option<String>,
    /// The one algorithm that it may be used with, if the issuer says so.
    algorithm: Option<String>,
    key: DecodingKey,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeySetError {
    #[error("it is not a JSON Web Key Set: {0}")]
    NotASet(#[from] serde_json::Error),
    #[error("it has {0} keys, and at most {MAX_KEYS} are read")]
    TooManyKeys(usize),
    #[error("it has no public key that signatures can be checked with")]
    NoKeys,
}

impl KeySet {
    /// Keys of kinds that are not known here are left out, because issuers add new ones beside the old.
    pub(crate) fn parse(json: &[u8]) -> Result<KeySet, KeySetError> {
        #[derive(Deserialize)]
        struct Document {
            keys: Vec<Value>,
        }
        let document: Document = serde_json::from_slice(json)?;
        if document.keys.len() > MAX_KEYS {
            return Err(KeySetError::TooManyKeys(document.keys.len()));
        }
        let keys: Vec<_> = document.keys.into_iter().filter_map(PublicKey::parse).collect();
        if keys.is_empty() { Err(KeySetError::NoKeys) } else { Ok(KeySet(keys)) }
    }

    /// The key that a token names. A token that names none must leave no choice.
    pub(crate) fn find(&self, header: &Header) -> Option<&DecodingKey> {
        let mut fitting = self.0.iter().filter(|key| key.fits(header.alg));
        match &header.kid {
            Some(id) => fitting.find(|key| key.id.as_ref() == Some(id)).map(|key| &key.key),
            None => {
                let only = fitting.next()?;
                fitting.next().is_none().then_some(&only.key)
            }
        }
    }
}

impl PublicKey {
    fn parse(key: Value) -> Option<PublicKey> {
        let algorithm = key.get("alg").and_then(Value::as_str).map(str::to_owned);
        let jwk: Jwk = serde_json::from_value(key).ok()?;
        let is_for_signatures = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
        // A secret in a public document is no secret.
        let is_secret = matches!(jwk.algorithm, AlgorithmParameters::OctetKey(_));
        if !is_for_signatures || is_secret {
            return None;
        }
        Some(PublicKey { key: DecodingKey::from_jwk(&jwk).ok()?, id: jwk.common.key_id, algorithm })
    }

    fn fits(&self, algorithm: Algorithm) -> bool {
        self.key.family() == algorithm.family()
            && self.algorithm.as_ref().is_none_or(|own| own.parse() == Ok(algorithm))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rsa(id: &str) -> Value {
        json!({ "kty": "RSA", "kid": id, "alg": "RS256", "use": "sig", "n": "AQAB", "e": "AQAB" })
    }

    fn set(keys: Value) -> Result<KeySet, KeySetError> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
    }

    fn header(algorithm: Algorithm, id: Option<&str>) -> Header {
        Header { kid: id.map(str::to_owned), ..Header::new(algorithm) }
    }

    #[test]
    fn a_key_is_found_by_its_id_and_its_algorithm() {
        let keys = set(json!([rsa("a"), rsa("b")])).unwrap();
        assert!(keys.find(&header(Algorithm::RS256, Some("a"))).is_some());
        assert!(keys.find(&header(Algorithm::RS256, Some("c"))).is_none());
        assert!(keys.find(&header(Algorithm::RS512, Some("a"))).is_none(), "the key is for RS256");
        assert!(keys.find(&header(Algorithm::HS256, Some("a"))).is_none(), "a public key is no secret");
        assert!(keys.find(&header(Algorithm::RS256, None)).is_none(), "there are two");
        let one = set(json!([rsa("a")])).unwrap();
        assert!(one.find(&header(Algorithm::RS256, None)).is_some());
    }

    #[test]
    fn keys_that_cannot_be_used_are_left_out() {
        let others = json!([
            { "kty": "new", "kid": "a" },
            { "kty": "oct", "kid": "b", "k": "AQAB", "alg": "HS256" },
            { "kty": "RSA", "kid": "c", "use": "enc", "n": "AQAB", "e": "AQAB" },
            { "kty": "RSA", "kid": "d", "n": "?", "e": "AQAB" },
            17,
            rsa("e"),
        ]);
        assert_eq!(set(others).unwrap().0.len(), 1);
    }

    #[test]
    fn a_set_that_is_none_is_refused() {
        assert!(matches!(KeySet::parse(b"<html>"), Err(KeySetError::NotASet(_))));
        assert!(matches!(KeySet::parse(b"{}"), Err(KeySetError::NotASet(_))));
        assert!(matches!(set(json!([])), Err(KeySetError::NoKeys)));
        assert!(matches!(set(json!(vec![rsa("a"); 101])), Err(KeySetError::TooManyKeys(101))));
    }
}
