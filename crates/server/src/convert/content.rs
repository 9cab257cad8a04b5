//! Digests that identify reports and submissions: two are the same exactly when their digests are.
//!
//! The digests cover parsed JSON instead of the bytes as sent, and only what every contract has, so that a repeat
//! through another contract is still a repeat.

use authority::{Digest, Properties, TaskError};
use wire::strict_json::{Fault, canonical};

use super::lease_id::hash_parts;

/// Of a completion with its result.
pub(crate) fn completion(result: &[u8]) -> Result<Digest, Fault> {
    Ok(digest("completion", [&canonical(result)?[..]]))
}

/// Of a failure with its category, code and message.
pub(crate) fn failure(error: &TaskError) -> Digest {
    let code = error.code.as_deref();
    let has_code = [u8::from(code.is_some())];
    let texts = [code.unwrap_or(""), &error.message].map(str::as_bytes);
    digest("failure", [error.category.name().as_bytes(), &has_code].into_iter().chain(texts))
}

/// Of what a dedup key stands for.
pub(crate) fn submission(payload: &[u8], properties: &Properties) -> Result<Digest, Fault> {
    let payload = canonical(payload)?;
    let properties = properties.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    Ok(digest("submission", [&payload[..]].into_iter().chain(properties)))
}

/// Of a worker's own name for a request.
pub(crate) fn request(request_id: &str) -> Digest {
    digest("request", [request_id.as_bytes()])
}

fn digest<'a>(kind: &'a str, parts: impl IntoIterator<Item = &'a [u8]>) -> Digest {
    Digest(hash_parts(blake3::Hasher::new(), [kind.as_bytes()].into_iter().chain(parts)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use authority::Category;

    use super::*;

    fn error(category: Category, code: Option<&str>, message: &str) -> TaskError {
        TaskError { category, code: code.map(Arc::from), message: Arc::from(message) }
    }

    #[test]
    fn s0_26_the_same_result_in_another_spelling_is_the_same_report() {
        assert_eq!(completion(br#"{"a":1,"b":2}"#), completion(b"{\"b\": 2, \"a\": 1.0}"));
        assert_ne!(completion(b"1"), completion(b"2"));
        assert_ne!(completion(b"null"), completion(b"{}"));
    }

    #[test]
    fn every_part_of_an_error_counts() {
        let errors = [
            error(Category::UserCode, None, "x"),
            error(Category::Timeout, None, "x"),
            error(Category::UserCode, Some(""), "x"),
            error(Category::UserCode, Some("x"), ""),
            error(Category::UserCode, None, "y"),
        ];
        for (n, one) in errors.iter().enumerate() {
            assert!(errors[n + 1..].iter().all(|other| failure(one) != failure(other)), "{one:?}");
        }
    }

    #[test]
    fn a_completion_is_never_taken_for_a_failure() {
        assert_ne!(completion(b"\"x\"").unwrap(), failure(&error(Category::UserCode, None, "x")));
    }

    #[test]
    fn i4_a_dedup_key_stands_for_payload_and_properties() {
        let none = Properties::default();
        let linux = Properties::new([(Arc::from("os"), Arc::from("linux"))]);
        let soxl = Properties::new([(Arc::from("o"), Arc::from("slinux"))]);
        assert_ne!(submission(b"1", &none), submission(b"1", &linux));
        assert_ne!(submission(b"1", &linux), submission(b"1", &soxl));
        assert_eq!(submission(b"[1]", &linux), submission(b" [ 1 ] ", &linux));
    }
}
