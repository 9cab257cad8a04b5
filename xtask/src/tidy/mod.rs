//! Tidy: the house rules as code. Each rule is one file, says why it exists, and has a test that breaks it.
//!
//! Rules see the repository as a value (`Repository`), so that a test is a few lines of text and no rule
//! reads the disk on its own.

mod authority_purity;
mod dependency_direction;
mod dependency_list;
mod file_header;
mod file_length;
mod leftovers;
mod licences;
mod links;
mod lints;
mod machine_paths;
mod planted_bugs;
mod repository;
mod requirements;
mod server_layers;
mod test_sleeps;

use std::fmt;
use std::path::Path;

use anyhow::{Result, bail};
use repository::Repository;

/// A house rule: its name, the reason for it, and the function that finds what breaks it.
struct Rule {
    name: &'static str,
    why: &'static str,
    check: fn(&Repository) -> Vec<Finding>,
}

const RULES: &[Rule] = &[
    Rule {
        name: "file-length",
        why: "a long file is really two: split it, or name the reason in file_length.rs",
        check: file_length::check,
    },
    Rule { name: "leftovers", why: "unfinished work is finished or removed", check: leftovers::check },
    Rule {
        name: "machine-paths",
        why: "a path of one machine breaks on every other",
        check: machine_paths::check,
    },
    Rule {
        name: "test-sleeps",
        why: "a sleep is too short on a slow machine and too long on a fast one: wait on a signal",
        check: test_sleeps::check,
    },
    Rule {
        name: "file-header",
        why: "a file opens with what it is for, what it guarantees and what it must not do",
        check: file_header::check,
    },
    Rule {
        name: "dependency-direction",
        why: "an inner crate never knows an outer one",
        check: dependency_direction::check,
    },
    Rule {
        name: "server-layers",
        why: "a protocol adapter can be read, changed and removed without the others",
        check: server_layers::check,
    },
    Rule {
        name: "authority-purity",
        why: "the authority decides from its arguments alone, or replay would differ",
        check: authority_purity::check,
    },
    Rule {
        name: "planted-bugs",
        why: "bugs that tests plant stay out of everything that is shipped",
        check: planted_bugs::check,
    },
    Rule {
        name: "dependency-list",
        why: "each dependency has a reason in docs/dependencies.md",
        check: dependency_list::check,
    },
    Rule {
        name: "licences",
        why: "the product ships under Apache-2.0, from crates that allow it and come from crates.io",
        check: licences::check,
    },
    Rule {
        name: "lints",
        why: "the workspace's lints, `unsafe` forbidden among them, hold in every crate",
        check: lints::check,
    },
    Rule {
        name: "requirements",
        why: "each requirement of the contracts has its row in docs/contracts.md, and each test named there exists",
        check: requirements::check,
    },
    Rule { name: "links", why: "a link in a document leads somewhere", check: links::check },
];

/// One place that breaks a rule. Line 0 stands for the file as a whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
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

/// Applies every rule and prints every finding, with the reason of its rule once.
pub fn run(root: &Path) -> Result<()> {
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
        bail!("{count} breaches of the house rules");
    }
    println!("{} rules hold in {} files", RULES.len(), repository.files.len());
    Ok(())
}
