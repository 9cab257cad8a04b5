//! The text of an API key: `lsk_`, the key's id, `_` and its secret, both in lower-case hexadecimal.
//!
//! The text is shown once, when the key is made. What is kept of the secret is its SHA-256, which is as good as a slow hash,
//! because nobody can guess 256 random bits.

use std::fmt;

use authority::SecretHash;
use constant_time_eq::constant_time_eq_32;
use data_encoding::HEXLOWER;
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

const PREFIX: &str = "lsk_";
const ID_BYTES: usize = 8;
const ID_CHARS: usize = 2 * ID_BYTES;
const SECRET_BYTES: usize = 32;
const SECRET_CHARS: usize = 2 * SECRET_BYTES;
/// Every key has exactly so many characters; anything else is not read at all.
const KEY_CHARS: usize = PREFIX.len() + ID_CHARS + 1 + SECRET_CHARS;

/// A text that no log and no error may have. It prints as `***` and is wiped from memory when it is dropped.
#[derive(Clone)]
pub struct Secret(SecretString);

impl Secret {
    pub fn new(text: String) -> Secret {
        Secret(SecretString::from(text))
    }

    /// The text itself, for the one place that hands it over.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// A new key: its id, its text and the hash of its secret.
#[derive(Debug)]
pub struct NewKey {
    pub id: String,
    pub text: Secret,
    pub hash: SecretHash,
}

impl NewKey {
    /// Draws an id and a secret from the system's random source.
    pub fn generate() -> Result<NewKey, getrandom::Error> {
        let (mut id, mut secret) = ([0; ID_BYTES], [0; SECRET_BYTES]);
        getrandom::fill(&mut id)?;
        getrandom::fill(&mut secret)?;
        let id = HEXLOWER.encode(&id);
        let text = format!("{PREFIX}{id}_{}", HEXLOWER.encode(&secret));
        Ok(NewKey { id, text: Secret::new(text), hash: hash(&secret) })
    }

    /// A key that was made elsewhere; none if the text is no key.
    pub fn parse(text: &str) -> Option<NewKey> {
        let (id, hash) = parse(text)?;
        Some(NewKey { id: id.to_owned(), text: Secret::new(text.to_owned()), hash })
    }
}

/// The id and the hash of the secret, if the text has the form of a key.
pub(super) fn parse(text: &str) -> Option<(&str, SecretHash)> {
    if text.len() != KEY_CHARS {
        return None;
    }
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let mut bytes = [0; SECRET_BYTES];
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if id.len() != ID_CHARS || !is_hex(id) || secret.len() != SECRET_CHARS {
        return None;
    }
    HEXLOWER.decode_mut(secret.as_bytes(), &mut bytes).ok()?;
    Some((id, hash(&bytes)))
}

/// Compares in constant time.
pub(super) fn is_same(ours: &SecretHash, theirs: &SecretHash) -> bool {
    constant_time_eq_32(&ours.0, &theirs.0)
}

fn hash(secret: &[u8; SECRET_BYTES]) -> SecretHash {
    SecretHash(Sha256::digest(secret).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_made_and_no_two_are_the_same() {
        let (key, other) = (NewKey::generate().unwrap(), NewKey::generate().unwrap());
        let text = key.text.expose();
        assert_eq!(text.len(), KEY_CHARS);
        assert!(text.starts_with(&format!("lsk_{}_", key.id)), "{}", key.id);
        let (id, hash) = parse(text).unwrap();
        assert!(id == key.id && is_same(&hash, &key.hash));
        assert!(key.id != other.id && !is_same(&key.hash, &other.hash));
        assert!(is_same(&NewKey::parse(text).unwrap().hash, &key.hash));
    }

    #[test]
    fn x19_a_secret_prints_as_stars() {
        let key = NewKey::generate().unwrap();
        let secret = key.text.expose()[KEY_CHARS - SECRET_CHARS..].to_owned();
        let printed = format!("{key:?} {:?} {}", key.text, key.text);
        assert!(printed.contains("***") && !printed.contains(&secret), "{printed}");
    }
}
