//! Checks that the authority's sources use no clock, I/O, threads or randomness. `dependency_direction` checks its
//! dependencies; this rule checks its use of the standard library.

use super::Finding;
use super::repository::Repository;

const SOURCES: &str = "crates/authority/src/";
/// Injected bugs are switched on by a thread-local in this file, only with the feature that `injected_bugs` checks.
const SWITCH: &str = "crates/authority/src/injected_bug.rs";
const IMPURE: &[&str] = &[
    "std::fs",
    "std::io",
    "std::net",
    "std::env",
    "std::process",
    "std::thread",
    "thread_local",
    "std::cell",
    "Mutex",
    "RwLock",
    "Condvar",
    "mpsc",
    "std::time",
    "SystemTime",
    "Instant::",
    "RandomState",
    "async fn",
    "println!",
];

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let mut findings = Vec::new();
    let sources =
        repository.rust_files().filter(|file| file.path.starts_with(SOURCES) && file.path != SWITCH);
    for file in sources {
        let tests = file.tests_start();
        for (number, line) in file.lines().take_while(|(number, _)| *number < tests) {
            let is_comment = line.trim_start().starts_with("//");
            for word in IMPURE.iter().filter(|word| !is_comment && line.contains(**word)) {
                findings.push(Finding::new(&file.path, number, format!("the authority uses {word}")));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::with_file;
    use super::*;

    #[test]
    fn a_clock_in_the_authority_is_found() {
        for word in IMPURE {
            let text = format!("fn now() {{ {word} }}\n");
            assert_ne!(check(&with_file("crates/authority/src/decide.rs", &text)), [], "{word}");
            assert_eq!(check(&with_file("crates/coordinator/src/clock.rs", &text)), [], "{word}");
        }
    }

    #[test]
    fn the_authoritys_tests_may_read_files() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        assert_eq!(check(&with_file("crates/authority/src/decide.rs", text)), []);
    }
}
