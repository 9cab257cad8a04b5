//! Checks for paths that exist on one machine only.

use super::Finding;
use super::repository::Repository;

/// Roots of personal or temporary directories. Written in two halves, so that this file does not break its own rule.
const ROOTS: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/ho", "me/"),
    concat!("/wo", "rk/"),
    concat!("/fa", "rm/"),
    concat!("/Us", "ers/"),
];
/// Sources use a directory of their own (`tempfile`); documents may name this one in examples.
const SHARED_TEMPORARY: &str = concat!("/tm", "p/");

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &repository.files {
        let is_source = file.path.ends_with(".rs");
        for (number, line) in file.lines() {
            let shared = is_source.then_some(&SHARED_TEMPORARY);
            for root in ROOTS.iter().chain(shared).filter(|root| starts_path(line, root)) {
                findings.push(Finding::new(&file.path, number, format!("a path of one machine: {root}…")));
            }
        }
    }
    findings
}

/// Whether an absolute path in the line starts with the root. The middle of a longer path does not count.
fn starts_path(line: &str, root: &str) -> bool {
    line.match_indices(root).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-}*~".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::with_file;
    use super::*;

    #[test]
    fn a_path_of_one_machine_is_found_anywhere() {
        for root in ROOTS {
            assert_eq!(check(&with_file("README.md", &format!("cd {root}lessor\n"))).len(), 1, "{root}");
        }
        let source = format!("let path = \"{SHARED_TEMPORARY}x\";\n");
        assert_eq!(check(&with_file("crates/a/src/a.rs", &source)).len(), 1);
    }

    #[test]
    fn relative_paths_are_allowed() {
        for root in ROOTS {
            assert_eq!(check(&with_file("README.md", &format!("see docs{root}a.md and .{root}b\n"))), []);
        }
    }
}
