//! Names of content: a hash and a size.
//!
//! A `Digest` that exists is well formed: parsing is the only door for text, and it refuses upper-case
//! letters, wrong lengths and signs (I5). It says nothing about whether the content exists.

use std::fmt;

use data_encoding::HEXLOWER;

use crate::Hasher;

/// Bytes of a hash; both functions have the same length.
pub const HASH_BYTES: usize = 32;

/// The functions that blobs are named with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum DigestFunction {
    Sha256,
    Blake3,
}

impl DigestFunction {
    pub const ALL: [DigestFunction; 2] = [DigestFunction::Sha256, DigestFunction::Blake3];

    /// The name as it stands in resource names and paths.
    pub fn name(self) -> &'static str {
        match self {
            DigestFunction::Sha256 => "sha256",
            DigestFunction::Blake3 => "blake3",
        }
    }

    pub fn from_name(name: &str) -> Option<DigestFunction> {
        DigestFunction::ALL.into_iter().find(|function| function.name() == name)
    }
}

/// The hash of some content, printed as lower-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; HASH_BYTES]);

impl Hash {
    /// Parses exactly 64 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Result<Hash, DigestError> {
        if text.len() != 2 * HASH_BYTES {
            return Err(DigestError::HashLength(text.len()));
        }
        let mut hash = [0; HASH_BYTES];
        HEXLOWER.decode_mut(text.as_bytes(), &mut hash).map_err(|_| DigestError::HashDigit)?;
        Ok(Hash(hash))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 2 * HASH_BYTES];
        f.write_str(HEXLOWER.encode_mut_str(&self.0, &mut text))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of one blob.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    pub function: DigestFunction,
    pub hash: Hash,
    pub size: u64,
}

impl Digest {
    /// From the parts that a request carries. Sizes are signed on the wire.
    pub fn new(function: DigestFunction, hash: &str, size: i64) -> Result<Digest, DigestError> {
        let size = u64::try_from(size).map_err(|_| DigestError::NegativeSize(size))?;
        Ok(Digest { function, hash: Hash::parse(hash)?, size })
    }

    /// The name of this content.
    pub fn of(function: DigestFunction, content: &[u8]) -> Digest {
        let mut hasher = Hasher::new(function);
        hasher.update(content);
        hasher.finish()
    }

    /// Parses `{hash}/{size}`, the way digests are written in resource names and on command lines.
    pub fn parse(function: DigestFunction, text: &str) -> Result<Digest, DigestError> {
        let (hash, size) = text.split_once('/').ok_or(DigestError::NoSize)?;
        // `parse` would take a plus sign and leading zeros, which would give one blob several names.
        if size.is_empty()
            || !size.bytes().all(|c| c.is_ascii_digit())
            || (size.len() > 1 && size.starts_with('0'))
        {
            return Err(DigestError::BadSize);
        }
        let size = size.parse::<i64>().map_err(|_| DigestError::BadSize)?;
        Digest::new(function, hash, size)
    }

    /// Whether this names the empty blob, which is always present (R10).
    pub fn is_empty_blob(&self) -> bool {
        self.size == 0 && *self == Digest::of(self.function, &[])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hash, self.size)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.function.name())
    }
}

/// What is wrong with the text of a digest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DigestError {
    #[error("a hash has 64 hexadecimal digits, not {0}")]
    HashLength(usize),
    #[error("a hash is written in lower-case hexadecimal digits")]
    HashDigit,
    #[error("a size is not negative: {0}")]
    NegativeSize(i64),
    #[error("a digest is written HASH/SIZE")]
    NoSize,
    #[error("a size is a plain decimal number of at most 63 bits")]
    BadSize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const EMPTY_BLAKE3: &str = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";

    #[test]
    fn a_digest_reads_back_what_it_prints() {
        for function in DigestFunction::ALL {
            let digest = Digest::of(function, b"some content");
            assert_eq!(Digest::parse(function, &digest.to_string()), Ok(digest));
            assert_eq!(DigestFunction::from_name(function.name()), Some(function));
        }
    }

    #[test]
    fn known_hashes_come_out() {
        assert_eq!(Digest::of(DigestFunction::Sha256, b"").to_string(), format!("{EMPTY_SHA256}/0"));
        assert_eq!(Digest::of(DigestFunction::Blake3, b"").to_string(), format!("{EMPTY_BLAKE3}/0"));
    }

    /// I5.
    #[test]
    fn malformed_digests_are_refused() {
        let parse = |text: &str| Digest::parse(DigestFunction::Sha256, text).unwrap_err();
        assert_eq!(parse(&format!("{}/0", EMPTY_SHA256.to_uppercase())), DigestError::HashDigit);
        assert_eq!(parse(&format!("{}/0", &EMPTY_SHA256[1..])), DigestError::HashLength(63));
        assert_eq!(parse(EMPTY_SHA256), DigestError::NoSize);
        for size in ["", "+1", "-1", "01", "1 ", "x", "9223372036854775808"] {
            assert_eq!(parse(&format!("{EMPTY_SHA256}/{size}")), DigestError::BadSize, "{size}");
        }
        let negative = Digest::new(DigestFunction::Sha256, EMPTY_SHA256, -1);
        assert_eq!(negative, Err(DigestError::NegativeSize(-1)));
    }

    #[test]
    fn only_the_right_hash_with_size_zero_is_the_empty_blob() {
        for function in DigestFunction::ALL {
            assert!(Digest::of(function, b"").is_empty_blob());
            assert!(!Digest { size: 0, ..Digest::of(function, b"a") }.is_empty_blob());
            assert!(!Digest { size: 1, ..Digest::of(function, b"") }.is_empty_blob());
        }
    }
}
