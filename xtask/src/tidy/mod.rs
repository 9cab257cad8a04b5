//! Tidy: checks the project's rules. Each rule is one file, states its reason, and has a test that breaks the rule.
//!
//! A rule gets the repository as a value (`Repository`), so a test is a few lines of text and no rule reads the disk.

mod authority_purity;
mod dependency_direction;
mod dependency_list;
mod duplicate_versions;
mod file_header;
mod file_length;
mod guarantees;
mod injected_bugs;
mod leftovers;
mod licences;
mod links;
mod lints;
mod mac_comparison;
mod machine_paths;
mod repository;
mod requirements;
mod server_layers;
mod test_sleeps;

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use repository::Repository;

/// A rule: its name, the reason for it, and the function that finds violations.
struct Rule {
    name: &'static str,
    why: &'static str,
    check: fn(&Repository) -> Vec<Finding>,
}

const RULES: &[Rule] = &[
    Rule {
        name: "file-length",
        why: "a long file does two things: split it, or state the reason in file_length.rs",
        check: file_length::check,
    },
    Rule { name: "leftovers", why: "finish unfinished work or remove it", check: leftovers::check },
    Rule {
        name: "machine-paths",
        why: "a path of one machine breaks on every other machine",
        check: machine_paths::check,
    },
    Rule {
        name: "test-sleeps",
        why: "a sleep is too short on a slow machine and too long on a fast one: wait on a signal",
        check: test_sleeps::check,
    },
    Rule {
        name: "file-header",
        why: "a file starts with its purpose, its guarantees and what it must not do",
        check: file_header::check,
    },
    Rule {
        name: "dependency-direction",
        why: "an inner crate never depends on an outer crate",
        check: dependency_direction::check,
    },
    Rule {
        name: "server-layers",
        why: "a protocol adapter can be read, changed and removed without the others",
        check: server_layers::check,
    },
    Rule {
        name: "authority-purity",
        why: "the authority decides from its arguments alone; otherwise replay would differ",
        check: authority_purity::check,
    },
    Rule {
        name: "injected-bugs",
        why: "injected bugs must not be part of a shipped build",
        check: injected_bugs::check,
    },
    Rule {
        name: "dependency-list",
        why: "each dependency has a reason in docs/dependencies.md",
        check: dependency_list::check,
    },
    Rule {
        name: "licences",
        why: "the product ships under Apache-2.0: dependencies must allow this and come from crates.io",
        check: licences::check,
    },
    Rule {
        name: "duplicate-versions",
        why: "a crate in two versions is built twice, and a mended fault may still be in the other one",
        check: duplicate_versions::check,
    },
    Rule {
        name: "lints",
        why: "the workspace's lints, including `unsafe_code = \"forbid\"`, apply to every crate",
        check: lints::check,
    },
    Rule {
        name: "requirements",
        why: "each requirement and each fault of a cluster has one row in its document, and each test named there exists",
        check: requirements::check,
    },
    Rule {
        name: "mac-comparison",
        why: "the time of a comparison must not tell how much of a forged MAC is right",
        check: mac_comparison::check,
    },
    Rule {
        name: "guarantees",
        why: "each guarantee and each fault of the catalogue has tests, and docs/guarantees.md lists them",
        check: guarantees::check,
    },
    Rule { name: "links", why: "a link in a document resolves", check: links::check },
];

/// One violation of a rule. Line 0 means the whole file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: impl Into<String>, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path, self.message),
            line => write!(f, "{}:{line}: {}", self.path, self.message),
        }
    }
}

/// Writes the generated tables of docs/guarantees.md.
pub(crate) fn write_guarantees(root: &Path) -> Result<()> {
    let document = guarantees::document(&Repository::load(root)?)?;
    let path = root.join(guarantees::DOCUMENT);
    std::fs::write(&path, document).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{} is up to date", guarantees::DOCUMENT);
    Ok(())
}

/// Applies every rule and prints every finding below its rule's reason.
pub(crate) fn run(root: &Path) -> Result<()> {
    let repository = Repository::load(root)?;
    let mut count = 0;
    for rule in RULES {
        let findings = (rule.check)(&repository);
        if !findings.is_empty() {
            println!("{}: {}", rule.name, rule.why);
        }
        for finding in &findings {
            println!("  {finding}");
        }
        count += findings.len();
    }
    if count > 0 {
        bail!("{count} violations of the rules");
    }
    println!("{} rules hold in {} files", RULES.len(), repository.files.len());
    Ok(())
}
