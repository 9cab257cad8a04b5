//! Checks for marks of unfinished work: a reader cannot tell a known gap from a forgotten one.

use super::Finding;
use super::repository::Repository;

/// Each mark is written in two halves, so that this file does not break its own rule.
const LEFTOVERS: &[&str] = &[
    concat!("to", "do!("),
    concat!("unimplem", "ented!("),
    concat!("db", "g!("),
    concat!("#[ign", "ore"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &repository.files {
        for (number, line) in file.lines() {
            for leftover in LEFTOVERS.iter().filter(|leftover| contains_word(line, leftover)) {
                findings.push(Finding::new(&file.path, number, format!("left over: {leftover}")));
            }
        }
    }
    findings
}

/// Whether the text contains the word with no letter, digit or underscore next to it.
fn contains_word(text: &str, word: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    // `#[…` and `…!(` match whatever follows.
    let ends_open = word.ends_with(is_word);
    text.match_indices(word).any(|(start, _)| {
        let continues_before = text[..start].ends_with(is_word);
        let continues_after = ends_open && text[start + word.len()..].starts_with(is_word);
        !continues_before && !continues_after
    })
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::with_file;
    use super::*;

    #[test]
    fn each_leftover_is_found() {
        for leftover in LEFTOVERS {
            let repository = with_file("crates/a/src/a.rs", &format!("fn a() {{\n    {leftover})\n}}\n"));
            let findings = check(&repository);
            assert_eq!(findings.len(), 1, "{leftover}");
            assert_eq!(findings[0].line, 2);
        }
    }

    #[test]
    fn a_longer_word_is_not_a_leftover() {
        let template = format!("mktemp lessor.{}\nmy_{}x)\n", "X".repeat(6), LEFTOVERS[0]);
        assert_eq!(check(&with_file("a.sh", &template)), []);
    }
}
