//! Converts digests to the messages of the Remote Execution API.

use bazel_remote_apis::build::bazel::remote::execution::v2::Digest as ProtoDigest;
use blobs::Digest;

pub(crate) fn digest_to_proto(digest: &Digest) -> ProtoDigest {
    let size_bytes = i64::try_from(digest.size).unwrap_or(i64::MAX);
    ProtoDigest { hash: digest.hash.to_string(), size_bytes }
}
