//! Converts digests between the content store's type and protobuf (R6 to R8). Both functions have hashes of one length,
//! so a message that names no function means SHA-256.

use std::fmt::Display;

use blobs::{Digest, DigestFunction};

use crate::InvalidMessage;
use crate::reapi;
use crate::reapi::digest_function::Value;

/// The supported functions, the preferred one first.
pub const FUNCTIONS: [Value; 2] = [Value::Sha256, Value::Blake3];

pub fn to_proto(digest: &Digest) -> reapi::Digest {
    reapi::Digest {
        hash: digest.hash.to_string(),
        size_bytes: i64::try_from(digest.size).unwrap_or(i64::MAX),
    }
}

/// `what` names the digest in an error. Without a function, SHA-256 is meant.
pub fn from_proto(
    digest: Option<&reapi::Digest>,
    function: impl Into<Option<DigestFunction>>,
    what: impl Display,
) -> Result<Digest, InvalidMessage> {
    let digest = digest.ok_or_else(|| InvalidMessage::new(format!("{what}: the digest is missing")))?;
    let function = function.into().unwrap_or(DigestFunction::Sha256);
    Digest::new(function, &digest.hash, digest.size_bytes)
        .map_err(|error| InvalidMessage::new(format!("{what}: {error}")))
}

pub fn function_to_proto(function: DigestFunction) -> Value {
    match function {
        DigestFunction::Sha256 => Value::Sha256,
        DigestFunction::Blake3 => Value::Blake3,
    }
}

/// The function of a request; none when the request names none.
pub fn function_from_proto(number: i32) -> Result<Option<DigestFunction>, InvalidMessage> {
    match Value::try_from(number) {
        Ok(Value::Unknown) => Ok(None),
        Ok(Value::Sha256) => Ok(Some(DigestFunction::Sha256)),
        Ok(Value::Blake3) => Ok(Some(DigestFunction::Blake3)),
        Ok(other) => Err(unsupported(other.as_str_name())),
        Err(_) => Err(unsupported(&number.to_string())),
    }
}

/// The function with this name in the protocol, such as `SHA256`.
pub fn function_from_name(name: &str) -> Result<DigestFunction, InvalidMessage> {
    let function = Value::from_str_name(name).map(|value| function_from_proto(value.into()));
    function.transpose()?.flatten().ok_or_else(|| unsupported(name))
}

fn unsupported(name: &str) -> InvalidMessage {
    InvalidMessage::new(format!("the digest function {name} is not supported; SHA256 and BLAKE3 are"))
}

/// The digest as a part of a resource name. Only SHA-256 is not named.
pub fn resource_path(digest: &Digest) -> String {
    match digest.function {
        DigestFunction::Sha256 => digest.to_string(),
        other => format!("{}/{digest}", other.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r7_a_digest_survives_the_conversion_and_a_malformed_one_is_refused() {
        let digest = Digest::of(DigestFunction::Sha256, b"content");
        assert_eq!(from_proto(Some(&to_proto(&digest)), DigestFunction::Sha256, "x"), Ok(digest));
        let negative = reapi::Digest { size_bytes: -1, ..to_proto(&digest) };
        let malformed = reapi::Digest { hash: "ABC".into(), size_bytes: 1 };
        for bad in [None, Some(&negative), Some(&malformed)] {
            let error = from_proto(bad, DigestFunction::Sha256, "the command").unwrap_err();
            assert!(error.to_string().starts_with("the command: "), "{error}");
        }
    }

    #[test]
    fn r7_only_sha256_and_blake3_are_supported() {
        assert_eq!(function_from_proto(0), Ok(None));
        assert_eq!(function_from_proto(Value::Blake3 as i32), Ok(Some(DigestFunction::Blake3)));
        for other in [Value::Md5 as i32, Value::Sha1 as i32, 999, -1] {
            assert!(function_from_proto(other).is_err(), "{other}");
        }
        for function in DigestFunction::ALL {
            assert_eq!(function_from_name(function_to_proto(function).as_str_name()), Ok(function));
        }
        assert!(function_from_name("MD5").is_err() && function_from_name("UNKNOWN").is_err());
    }

    #[test]
    fn r31_only_blake3_is_named_in_a_resource_path() {
        let sha256 = Digest::of(DigestFunction::Sha256, b"a");
        let blake3 = Digest::of(DigestFunction::Blake3, b"a");
        assert_eq!(resource_path(&sha256), sha256.to_string());
        assert_eq!(resource_path(&blake3), format!("blake3/{blake3}"));
    }
}
