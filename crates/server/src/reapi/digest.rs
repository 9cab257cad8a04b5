//! Digests between the wire and the content store (R6 to R8). Both functions have hashes of one length, so SHA-256 is
//! meant where none is named.

use blobs::{Digest, DigestFunction};
use tonic::Status;

use super::messages;
use super::messages::digest_function::Value;

/// What is served, the preferred one first.
pub const FUNCTIONS: [Value; 2] = [Value::Sha256, Value::Blake3];

/// The function that a request names; none when it leaves it open.
pub fn function(number: i32) -> Result<Option<DigestFunction>, Status> {
    match Value::try_from(number) {
        Ok(Value::Unknown) => Ok(None),
        Ok(Value::Sha256) => Ok(Some(DigestFunction::Sha256)),
        Ok(Value::Blake3) => Ok(Some(DigestFunction::Blake3)),
        Ok(other) => Err(unsupported(other.as_str_name())),
        Err(_) => Err(unsupported(&number.to_string())),
    }
}

fn unsupported(name: &str) -> Status {
    Status::invalid_argument(format!("the digest function {name} is not supported; SHA256 and BLAKE3 are"))
}

pub fn function_to_proto(function: DigestFunction) -> Value {
    match function {
        DigestFunction::Sha256 => Value::Sha256,
        DigestFunction::Blake3 => Value::Blake3,
    }
}

/// A digest in a request's own field.
pub fn asked(
    digest: Option<&messages::Digest>,
    function: Option<DigestFunction>,
    field: &str,
) -> Result<Digest, Status> {
    let digest = digest.ok_or_else(|| Status::invalid_argument(format!("{field}: is missing")))?;
    Digest::new(function.unwrap_or(DigestFunction::Sha256), &digest.hash, digest.size_bytes)
        .map_err(|fault| Status::invalid_argument(format!("{field}: {fault}")))
}

/// A digest within a message, which is of the function of the message's own.
pub fn named(digest: Option<&messages::Digest>, function: DigestFunction) -> Result<Digest, Status> {
    asked(digest, Some(function), "a digest")
}

pub fn to_proto(digest: &Digest) -> messages::Digest {
    messages::Digest {
        hash: digest.hash.to_string(),
        size_bytes: i64::try_from(digest.size).unwrap_or(i64::MAX),
    }
}

/// As part of a resource name.
pub fn path(digest: &Digest) -> String {
    match digest.function {
        DigestFunction::Sha256 => digest.to_string(),
        other => format!("{}/{digest}", other.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r7_sha256_is_meant_where_no_function_is_named_and_others_are_refused() {
        let empty = Digest::of(DigestFunction::Sha256, b"");
        assert_eq!(asked(Some(&to_proto(&empty)), None, "x").unwrap(), empty);
        assert_eq!(function(0).unwrap(), None);
        assert_eq!(function(Value::Blake3 as i32).unwrap(), Some(DigestFunction::Blake3));
        for other in [Value::Md5 as i32, Value::Sha1 as i32, 999, -1] {
            assert_eq!(function(other).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
    }

    #[test]
    fn r31_only_blake3_is_named_in_a_path() {
        let sha = Digest::of(DigestFunction::Sha256, b"a");
        let blake = Digest::of(DigestFunction::Blake3, b"a");
        assert_eq!(path(&sha), sha.to_string());
        assert_eq!(path(&blake), format!("blake3/{blake}"));
    }
}
