//! Hashes content piece by piece.

use sha2::Digest as _;

use crate::{Digest, DigestFunction, Hash};

/// The hash and the size of all updates so far. A clone continues independently.
#[derive(Clone)]
pub struct Hasher {
    state: State,
    size: u64,
}

#[derive(Clone)]
enum State {
    Sha256(sha2::Sha256),
    /// Its state is two kilobytes; the other's a hundred bytes.
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    pub fn new(function: DigestFunction) -> Hasher {
        let state = match function {
            DigestFunction::Sha256 => State::Sha256(sha2::Sha256::new()),
            DigestFunction::Blake3 => State::Blake3(Box::default()),
        };
        Hasher { state, size: 0 }
    }

    pub fn update(&mut self, content: &[u8]) {
        self.size += content.len() as u64;
        match &mut self.state {
            State::Sha256(hasher) => hasher.update(content),
            State::Blake3(hasher) => {
                hasher.update(content);
            }
        }
    }

    /// Bytes shown so far.
    pub fn size(&self) -> u64 {
        self.size
    }

    pub fn finish(self) -> Digest {
        let (function, hash) = match self.state {
            State::Sha256(hasher) => (DigestFunction::Sha256, hasher.finalize().into()),
            State::Blake3(hasher) => (DigestFunction::Blake3, hasher.finalize().into()),
        };
        Digest { function, hash: Hash(hash), size: self.size }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_give_the_same_digest_as_the_whole() {
        let content: Vec<u8> = (0..5_000u32).map(|n| (n % 251) as u8).collect();
        for function in DigestFunction::ALL {
            let mut hasher = Hasher::new(function);
            content.chunks(77).for_each(|piece| hasher.update(piece));
            assert_eq!(hasher.size(), 5_000);
            assert_eq!(hasher.finish(), Digest::of(function, &content));
        }
    }
}
