//! Checks that every Rust file starts with a `//!` comment that states its purpose.

use super::Finding;
use super::repository::Repository;

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let missing = repository.rust_files().filter(|file| {
        let first = file.text.lines().next().unwrap_or_default();
        first.strip_prefix("//!").is_none_or(|words| words.trim().is_empty())
    });
    missing.map(|file| Finding::new(&file.path, 1, "does not start with a `//!` sentence")).collect()
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
}
