//! The names of the keys that sign task tokens. Only the name of the newest is recorded; each key comes from its name
//! and the secret of the data directory.
//!
//! `k7.6` is the seventh key, and tokens of the sixth are still taken. So the name alone says which keys are good: a
//! rotation keeps the last key until its tokens have run out, or retires it at once.

use std::fmt;

use super::jwt::Key;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyId {
    number: u64,
    /// The oldest key whose tokens are taken.
    oldest: u64,
}

impl KeyId {
    pub(crate) const FIRST: KeyId = KeyId { number: 1, oldest: 1 };

    /// Reads a name as it is written, and no other spelling of it.
    pub(crate) fn parse(text: &str) -> Option<KeyId> {
        let (number, oldest) = text.strip_prefix('k')?.split_once('.')?;
        let id = KeyId { number: number.parse().ok()?, oldest: oldest.parse().ok()? };
        (id.to_string() == text && (1..=id.number).contains(&id.oldest)).then_some(id)
    }

    pub(crate) fn next(self, retire_old: bool) -> KeyId {
        let number = self.number.saturating_add(1);
        KeyId { number, oldest: if retire_old { number } else { self.number } }
    }

    /// Whether a token of that key is taken while this one is the newest.
    pub(crate) fn accepts(self, other: KeyId) -> bool {
        other == self || (self.oldest..self.number).contains(&other.number)
    }

    pub(crate) fn key(self, secret: &[u8; 32]) -> Key {
        *blake3::keyed_hash(secret, self.to_string().as_bytes()).as_bytes()
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "k{}.{}", self.number, self.oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_spelling() {
        assert_eq!(KeyId::parse("k1.1"), Some(KeyId::FIRST));
        for bad in ["", "k", "k1", "1.1", "k01.1", "k+1.1", "k1.2", "k0.0", "k1.0", "K1.1", "k1.1 ", "k-1.-1"]
        {
            assert_eq!(KeyId::parse(bad), None, "{bad}");
        }
        assert_eq!(KeyId::parse(&format!("k{}0.1", u64::MAX)), None);
    }

    #[test]
    fn x4_a_rotation_keeps_the_last_key_and_a_retirement_keeps_none() {
        let first = KeyId::FIRST;
        let second = first.next(false);
        let third = second.next(false);
        assert_eq!((second.to_string(), third.to_string()), ("k2.1".to_owned(), "k3.2".to_owned()));
        assert!(second.accepts(first) && second.accepts(second) && third.accepts(second));
        assert!(!third.accepts(first) && !first.accepts(second));
        let retired = second.next(true);
        assert_eq!(retired.to_string(), "k3.3");
        assert!(retired.accepts(retired) && !retired.accepts(second) && !retired.accepts(first));
        assert!(!retired.accepts(third), "another key of the same number is another key");
    }

    #[test]
    fn each_key_and_each_secret_gives_another() {
        let keys = [
            KeyId::FIRST.key(&[7; 32]),
            KeyId::FIRST.key(&[8; 32]),
            KeyId::FIRST.next(false).key(&[7; 32]),
            KeyId::FIRST.next(true).key(&[7; 32]),
        ];
        for (n, key) in keys.iter().enumerate() {
            assert!(!keys[n + 1..].contains(key));
        }
    }
}
