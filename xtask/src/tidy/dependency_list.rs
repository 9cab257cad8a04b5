//! Checks that docs/dependencies.md and `[workspace.dependencies]` list the same crates, and that our crates take every
//! dependency from the workspace.

use std::collections::BTreeSet;

use super::Finding;
use super::repository::Repository;

const DOCUMENT: &str = "docs/dependencies.md";

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let Some(document) = repository.file(DOCUMENT) else {
        return vec![Finding::new(DOCUMENT, 0, "is missing")];
    };
    let declared = &repository.declared_dependencies;
    let mut findings = Vec::new();
    let mut listed = BTreeSet::new();
    for (number, line) in document.lines() {
        let Some((name, reason)) = line.strip_prefix("- `").and_then(|rest| rest.split_once('`')) else {
            continue;
        };
        if !declared.contains(name) {
            findings.push(Finding::new(DOCUMENT, number, format!("`{name}` is not a dependency")));
        }
        if reason.trim_matches([':', ' ']).is_empty() {
            findings.push(Finding::new(DOCUMENT, number, format!("`{name}` has no reason")));
        }
        if !listed.insert(name.to_string()) {
            findings.push(Finding::new(DOCUMENT, number, format!("`{name}` is listed twice")));
        }
    }
    for name in declared.difference(&listed) {
        findings.push(Finding::new(DOCUMENT, 0, format!("`{name}` has no line: why this crate?")));
    }
    for package in repository.own_packages() {
        for dependency in package.dependencies.iter().filter(|dependency| dependency.path.is_none()) {
            if !declared.contains(&dependency.name) {
                let message =
                    format!("`{}` does not take `{}` from the workspace", package.name, dependency.name);
                findings.push(Finding::new("Cargo.toml", 0, message));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::{own_package, with_file};
    use super::*;

    fn messages(document: &str, declared: &[&str], used: &[&str]) -> Vec<String> {
        let mut repository = with_file(DOCUMENT, document);
        repository.declared_dependencies = declared.iter().map(|name| name.to_string()).collect();
        repository.packages = vec![own_package("server", used)];
        check(&repository).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn a_document_that_matches_the_manifests_is_fine() {
        assert_eq!(messages("- `serde`: derives.\n", &["serde"], &["serde", "./wire"]), [""; 0]);
    }

    #[test]
    fn a_missing_line_a_stale_line_and_an_empty_reason_are_found() {
        assert_eq!(messages("", &["serde"], &[]), ["`serde` has no line: why this crate?"]);
        assert_eq!(messages("- `serde`: derives.\n", &[], &[]), ["`serde` is not a dependency"]);
        assert_eq!(messages("- `serde`:\n", &["serde"], &[]), ["`serde` has no reason"]);
        assert_eq!(messages("- `a`: b.\n- `a`: c.\n", &["a"], &[]), ["`a` is listed twice"]);
    }

    #[test]
    fn a_dependency_that_bypasses_the_workspace_is_found() {
        assert_eq!(messages("", &[], &["rand"]), ["`server` does not take `rand` from the workspace"]);
    }
}
