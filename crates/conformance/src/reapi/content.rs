//! Content that nothing else has, and its digests.

use bazel_remote_apis::build::bazel::remote::execution::v2::Digest;
use bazel_remote_apis::build::bazel::remote::execution::v2::digest_function::Value as Function;
use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::Finding;

/// The functions that the suite can compute.
pub(super) const KNOWN: [Function; 2] = [Function::Sha256, Function::Blake3];

/// So many random bytes.
pub(super) fn random(bytes: usize) -> Result<Vec<u8>, Finding> {
    let mut content = vec![0; bytes];
    getrandom::fill(&mut content).map_err(|error| Finding::broken(format!("no randomness: {error}")))?;
    Ok(content)
}

/// Content that compresses well and is like no other.
pub(super) fn compressible(bytes: usize) -> Result<Vec<u8>, Finding> {
    let mut content = random(64.min(bytes))?;
    content.resize(bytes, b'x');
    Ok(content)
}

pub(super) fn digest(bytes: &[u8]) -> Digest {
    digest_by(Function::Sha256, bytes)
}

/// The digest by one of the functions that are known; SHA-256 for all others.
pub(super) fn digest_by(function: Function, bytes: &[u8]) -> Digest {
    let hash: [u8; 32] = match function {
        Function::Blake3 => blake3::hash(bytes).into(),
        _ => Sha256::digest(bytes).into(),
    };
    Digest { hash: HEXLOWER.encode(&hash), size_bytes: bytes.len() as i64 }
}

/// Not the name of anything.
pub(super) fn unknown_digest() -> Result<Digest, Finding> {
    Ok(digest(&random(32)?))
}

/// So many random bytes, as hexadecimal digits.
pub(super) fn random_hex(bytes: usize) -> Result<String, Finding> {
    Ok(HEXLOWER.encode(&random(bytes)?))
}

pub(super) fn compress(bytes: &[u8]) -> Result<Vec<u8>, Finding> {
    zstd::encode_all(bytes, 1).map_err(|error| Finding::broken(format!("it cannot be compressed: {error}")))
}

pub(super) fn decompress(bytes: &[u8]) -> Result<Vec<u8>, Finding> {
    zstd::decode_all(bytes).map_err(|error| Finding::broken(format!("it is not a Zstandard stream: {error}")))
}
