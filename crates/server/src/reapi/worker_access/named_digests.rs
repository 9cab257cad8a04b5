//! Finds the digests of blobs in the text of a report, as `hash/size`.

use blobs::{Digest, DigestFunction, Hash};

/// Most digests of one report. A command has two outputs.
const MAX_NAMED: usize = 16;
const HASH_DIGITS: usize = 64;

/// The digests in a text, for every digest function, because the text does not tell it.
pub(super) fn find(text: &str) -> Vec<Digest> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('/').filter(|(at, _)| *at >= HASH_DIGITS) {
        let Some(hash) = text.get(at - HASH_DIGITS..at).and_then(|hash| Hash::parse(hash).ok()) else {
            continue;
        };
        let rest = &text[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if let Ok(size) = rest[..digits].parse() {
            found.extend(DigestFunction::ALL.map(|function| Digest { function, hash, size }));
        }
        if found.len() >= MAX_NAMED * DigestFunction::ALL.len() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_found_in_json_and_in_messages() {
        let digest = Digest::of(DigestFunction::Sha256, b"output");
        for text in [
            format!(r#"{{"exitCode":0,"stdoutDigest":"{digest}"}}"#),
            format!("the command ended with exit code 1, standard error {digest}; é"),
        ] {
            assert!(find(&text).contains(&digest), "{text}");
        }
        for text in [String::new(), "é/1".repeat(99), digest.hash.to_string(), format!("{}/x", digest.hash)]
        {
            assert!(find(&text).is_empty(), "{text}");
        }
        assert!(find(&format!("{digest} ").repeat(10_000)).len() <= MAX_NAMED * DigestFunction::ALL.len());
    }
}
