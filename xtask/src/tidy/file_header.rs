//! Checks that every Rust file starts with a `//!` comment that names what the file is.

use super::Finding;
use super::repository::Repository;

/// A header that begins with one of these describes a question instead of naming a thing.
const QUESTION_WORDS: &[&str] = &["What", "How", "Where", "Who", "Why"];

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let findings = repository.rust_files().map(|file| {
        let first = file.text.lines().next().unwrap_or_default();
        let Some(header) = first.strip_prefix("//!").map(str::trim).filter(|header| !header.is_empty())
        else {
            return Some(Finding::new(&file.path, 1, "does not start with a `//!` sentence"));
        };
        let word = header.split_whitespace().next().unwrap_or_default();
        QUESTION_WORDS
            .contains(&word)
            .then(|| Finding::new(&file.path, 1, format!("the header begins with `{word}`: name the thing")))
    });
    findings.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::with_file;
    use super::*;

    #[test]
    fn a_file_without_a_header_is_found() {
        for text in ["", "fn a() {}\n", "// A remark.\n", "//!\n", "\n//! Too late.\n"] {
            assert_eq!(check(&with_file("crates/a/src/a.rs", text)).len(), 1, "{text:?}");
        }
        assert_eq!(check(&with_file("crates/a/src/a.rs", "//! Adds numbers.\n")), []);
        assert_eq!(check(&with_file("README.md", "# Lessor\n")), []);
    }

    #[test]
    fn a_header_that_asks_a_question_is_found() {
        assert_eq!(check(&with_file("crates/a/src/a.rs", "//! How numbers are added.\n")).len(), 1);
        assert_eq!(check(&with_file("crates/a/src/a.rs", "//! Howitzers.\n")), []);
    }
}
