//! Checks that no source file or document is too long to read in one sitting.

use super::Finding;
use super::repository::Repository;

const MAX_LINES: usize = 500;
const EXTENSIONS: &[&str] =
    &[".rs", ".md", ".toml", ".sh", ".py", ".sql", ".proto", ".html", ".css", ".js", ".ts"];

/// Files that may be longer, each with its reason.
const ALLOWED: &[(&str, &str)] = &[];

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    check_with(repository, ALLOWED)
}

fn check_with(repository: &Repository, allowed: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &repository.files {
        let lines = file.lines().count();
        let is_allowed = allowed.iter().any(|(path, _)| *path == file.path);
        let is_source = EXTENSIONS.iter().any(|extension| file.path.ends_with(extension));
        if is_source && lines > MAX_LINES && !is_allowed {
            findings.push(Finding::new(&file.path, 0, format!("{lines} lines, more than {MAX_LINES}")));
        }
        if is_allowed && lines <= MAX_LINES {
            findings.push(Finding::new(
                &file.path,
                0,
                "is short enough: remove it from the list of long files",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::repository::examples::with_file;
    use super::*;

    #[test]
    fn a_long_file_is_found_unless_it_is_allowed() {
        let long = with_file("crates/a/src/long.rs", &"//\n".repeat(MAX_LINES + 1));
        assert_eq!(check_with(&long, &[]).len(), 1);
        assert_eq!(check_with(&long, &[("crates/a/src/long.rs", "a table")]), []);
    }

    #[test]
    fn a_file_at_the_limit_needs_no_permission() {
        let short = with_file("crates/a/src/short.rs", &"//\n".repeat(MAX_LINES));
        assert_eq!(check_with(&short, &[]), []);
        assert_eq!(check_with(&short, &[("crates/a/src/short.rs", "was long once")]).len(), 1);
    }
}
