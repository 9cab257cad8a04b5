//! Digests between the content store's type and the protocol's.

use bazel_remote_apis::build::bazel::remote::execution::v2::{self, digest_function};
use blobs::{Digest, DigestFunction};

use crate::Failure;

/// A digest from the network. `what` says in a failure whose digest it is.
pub fn read(function: DigestFunction, digest: Option<&v2::Digest>, what: &str) -> Result<Digest, Failure> {
    let digest = digest.ok_or_else(|| Failure::invalid_action(format!("{what} has no digest")))?;
    Digest::new(function, &digest.hash, digest.size_bytes)
        .map_err(|error| Failure::invalid_action(format!("{what} has a bad digest: {error}")))
}

pub fn told(digest: &Digest) -> v2::Digest {
    v2::Digest { hash: digest.hash.to_string(), size_bytes: i64::try_from(digest.size).unwrap_or(i64::MAX) }
}

/// The protocol's number of a function.
pub fn number(function: DigestFunction) -> i32 {
    match function {
        DigestFunction::Sha256 => digest_function::Value::Sha256.into(),
        DigestFunction::Blake3 => digest_function::Value::Blake3.into(),
    }
}
