//! Checks that no test waits by sleeping.

use super::Finding;
use super::repository::Repository;

/// Calls that sleep. Written in two halves, so that this file does not break its own rule.
const CALLS: &[&str] = &[concat!("sle", "ep("), concat!("sle", "ep_until("), concat!("sle", "ep_ms(")];

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in repository.rust_files() {
        let start = file.tests_start();
        for (number, line) in file.lines().filter(|(number, _)| *number >= start) {
            if !line.trim_start().starts_with("//") && CALLS.iter().any(|call| calls(line, call)) {
                findings.push(Finding::new(&file.path, number, "a test sleeps"));
            }
        }
    }
    findings
}

fn calls(line: &str, call: &str) -> bool {
    line.match_indices(call)
        .any(|(start, _)| !line[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::with_file;
    use super::*;

    #[test]
    fn a_sleep_in_a_test_is_found() {
        for call in CALLS {
            let test = format!("fn a() {{\n    std::thread::{call}x);\n}}\n");
            assert_eq!(check(&with_file("crates/a/tests/a.rs", &test)).len(), 1, "{call}");
            let module =
                format!("fn a() {{}}\n#[cfg(test)]\nmod tests {{\n    tokio::time::{call}x).await\n}}\n");
            assert_eq!(check(&with_file("crates/a/src/a.rs", &module)).len(), 1, "{call}");
        }
    }

    #[test]
    fn a_timer_outside_tests_is_allowed() {
        let source = format!("fn a() {{\n    tokio::time::{}deadline).await\n}}\n", CALLS[1]);
        assert_eq!(check(&with_file("crates/a/src/a.rs", &source)), []);
    }
}
