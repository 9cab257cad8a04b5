//! Loads the repository for the rules: text files, packages and declared dependencies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::steps::{cargo, host, output};

/// Directories without sources: build output, data of a local run, version control.
const SKIPPED: &[&str] = &["target", ".git", ".lessor", "node_modules"];
/// Code that a program writes.
const GENERATED: &[&str] = &["crates/wire/generated", "crates/lessor/tests/daemon/document_worker/generated"];

#[derive(Default)]
pub(super) struct Repository {
    /// Every UTF-8 file. No rule applies to binary fixtures.
    pub files: Vec<File>,
    /// Every path, including binary files and directories, to resolve links.
    pub paths: BTreeSet<String>,
    pub packages: Vec<Package>,
    /// The crates named in `[workspace.dependencies]` that are not our own.
    pub declared_dependencies: BTreeSet<String>,
}

/// A text file; its path is relative to the root and uses `/`.
pub(super) struct File {
    pub path: String,
    pub text: String,
}

/// A package from `cargo metadata`, ours or external.
#[derive(Deserialize)]
pub(super) struct Package {
    pub name: String,
    pub version: String,
    pub license: Option<String>,
    /// None for our own packages.
    pub source: Option<String>,
    pub dependencies: Vec<Dependency>,
    /// The package's features, each with the features that it enables.
    pub features: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize)]
pub(super) struct Dependency {
    pub name: String,
    /// None for a normal dependency, otherwise `dev` or `build`.
    pub kind: Option<String>,
    /// The directory, for our own packages only.
    pub path: Option<String>,
    /// The features that are enabled.
    pub features: Vec<String>,
}

impl Repository {
    pub(super) fn load(root: &Path) -> Result<Self> {
        let mut repository = Self { packages: load_packages(root)?, ..Self::default() };
        repository.walk(root, "")?;
        repository.files.sort_by(|a, b| a.path.cmp(&b.path));
        let manifest = repository.file("Cargo.toml").context("there is no Cargo.toml")?;
        repository.declared_dependencies = declared_dependencies(&manifest.text)?;
        Ok(repository)
    }

    pub(super) fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    pub(super) fn rust_files(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.path.ends_with(".rs"))
    }

    pub(super) fn own_packages(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.source.is_none())
    }

    fn walk(&mut self, root: &Path, relative: &str) -> Result<()> {
        let directory = root.join(relative);
        for entry in directory.read_dir().with_context(|| format!("cannot list {}", directory.display()))? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if relative.is_empty() { name.clone() } else { format!("{relative}/{name}") };
            if SKIPPED.contains(&name.as_str()) || GENERATED.contains(&path.as_str()) {
                continue;
            }
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.walk(root, &path)?;
            } else if kind.is_file()
                && let Ok(text) = String::from_utf8(std::fs::read(entry.path())?)
            {
                self.files.push(File { path: path.clone(), text });
            }
            self.paths.insert(path);
        }
        Ok(())
    }
}

impl File {
    /// The lines with their numbers, from 1.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The number of the first line that is test code only: 1 for a test file, the line of `#[cfg(test)]`
    /// above an inline module otherwise (tests stand at the bottom of a file), `usize::MAX` when there is none.
    pub(super) fn tests_start(&self) -> usize {
        let mut segments = self.path.rsplit('/');
        let stem = segments.next().unwrap_or_default().trim_end_matches(".rs");
        if stem == "tests" || stem.ends_with("_tests") || segments.any(|segment| segment == "tests") {
            return 1;
        }
        let mut marked = None;
        for (number, line) in self.lines() {
            let line = line.trim();
            if line == "#[cfg(test)]" {
                marked = Some(number);
            } else if let Some(start) = marked
                && !line.starts_with("#[")
            {
                if line.starts_with("mod ") && line.ends_with('{') {
                    return start;
                }
                marked = None;
            }
        }
        usize::MAX
    }
}

/// Filters by this machine's platform, so that cargo fetches only what the build needs anyway.
fn load_packages(root: &Path) -> Result<Vec<Package>> {
    #[derive(Deserialize)]
    struct Metadata {
        packages: Vec<Package>,
    }
    let host = host()?;
    let json = output(cargo(root).args(["metadata", "--format-version", "1", "--filter-platform", &host]))?;
    let metadata: Metadata = serde_json::from_str(&json).context("cannot read `cargo metadata`")?;
    Ok(metadata.packages)
}

fn declared_dependencies(manifest: &str) -> Result<BTreeSet<String>> {
    let manifest: toml::Table = manifest.parse().context("cannot read Cargo.toml")?;
    let declared = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let declared = declared.and_then(toml::Value::as_table).context("there are no workspace dependencies")?;
    Ok(declared
        .iter()
        .filter(|(_, value)| value.get("path").is_none())
        .map(|(name, _)| name.clone())
        .collect())
}

/// Builders for the tests of the rules.
#[cfg(test)]
pub(super) mod examples {
    use super::*;

    pub(crate) fn with_file(path: &str, text: &str) -> Repository {
        with_files(&[(path, text)])
    }

    pub(crate) fn with_files(files: &[(&str, &str)]) -> Repository {
        Repository {
            files: files
                .iter()
                .map(|(path, text)| File { path: path.to_string(), text: text.to_string() })
                .collect(),
            paths: files.iter().map(|(path, _)| path.to_string()).collect(),
            ..Repository::default()
        }
    }

    /// One of our packages with its normal dependencies; those that start with `./` are our own.
    pub(crate) fn own_package(name: &str, dependencies: &[&str]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|name| Dependency {
                name: name.trim_start_matches("./").to_string(),
                kind: None,
                path: name.starts_with("./").then(|| "somewhere".to_string()),
                features: Vec::new(),
            })
            .collect();
        let features = BTreeMap::new();
        let (license, source) = (None, None);
        Package { name: name.into(), version: "0.1.0".into(), license, source, dependencies, features }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_crates_are_not_declared_dependencies() {
        let manifest = "[workspace.dependencies]\nwire = { path = \"crates/wire\" }\nserde = \"1\"\n";
        assert_eq!(declared_dependencies(manifest).unwrap(), BTreeSet::from(["serde".to_string()]));
    }

    #[test]
    fn tests_start_at_the_test_module() {
        let start = |path: &str, text: &str| File { path: path.into(), text: text.into() }.tests_start();
        assert_eq!(start("crates/a/tests/x.rs", "fn a() {}"), 1);
        assert_eq!(start("crates/a/src/tests.rs", "fn a() {}"), 1);
        assert_eq!(start("crates/a/src/x.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n}"), 2);
        assert_eq!(start("crates/a/src/x.rs", "#[cfg(test)]\nfn helper() {\n}\nmod real {\n}"), usize::MAX);
        assert_eq!(start("crates/a/src/x.rs", "#[cfg(test)]\nmod tests;\nmod real {\n}"), usize::MAX);
    }
}
