//! Checks the crates of Cargo.lock against the RustSec advisory database, if there is a copy of it on this machine.
//!
//! `cargo audit` and `cargo deny` make the same check and fetch the database. This step fetches nothing, so that the checks
//! run without a network; it says when it had nothing to check with.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use semver::{Version, VersionReq};
use serde::Deserialize;

use crate::lock_file::{LockFile, LockedPackage};

const VARIABLE: &str = "RUSTSEC_ADVISORY_DB";
/// Where `cargo audit` keeps its copy, and below which `cargo deny` keeps some, in cargo's home.
const COPIES: [&str; 2] = ["advisory-db", "advisory-dbs"];

/// Advisories that do not concern us, each with the reason.
const IGNORED: &[(&str, &str)] = &[];

pub(crate) fn run(root: &Path) -> Result<()> {
    let Some(database) = find_database() else {
        println!(
            "there is no advisory database on this machine: nothing was checked for known vulnerabilities. To have one: \
             git clone https://github.com/rustsec/advisory-db ~/.cargo/advisory-db, or name a copy in {VARIABLE}"
        );
        return Ok(());
    };
    let lock = LockFile::load(root)?;
    let mut vulnerable = 0;
    for package in lock.packages.iter().filter(|package| package.source.is_some()) {
        for advisory in advisories_for(&database, package)? {
            let Advisory { id, informational, title } = &advisory;
            let text = format!("{} {}: {id}: {title}", package.name, package.version);
            match (IGNORED.iter().find(|(ignored, _)| ignored == id), informational) {
                (Some((_, reason)), _) => println!("  ignored: {text}: {reason}"),
                (None, Some(kind)) => println!("  {kind}: {text}"),
                (None, None) => {
                    println!("  VULNERABLE: {text}");
                    vulnerable += 1;
                }
            }
        }
    }
    if vulnerable > 0 {
        bail!(
            "{vulnerable} known vulnerabilities: update the crates, or ignore with a reason in advisories.rs"
        );
    }
    println!("no known vulnerability in {} crates, by {}", lock.packages.len(), database.display());
    Ok(())
}

/// The first directory that looks like a copy of the database.
fn find_database() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let copies = home.iter().flat_map(|home| COPIES.map(|copy| home.join(copy)));
    let below = home.iter().flat_map(|home| home.join(COPIES[1]).read_dir()).flatten().flatten();
    let candidates = named.into_iter().chain(copies).chain(below.map(|entry| entry.path()));
    candidates.into_iter().find(|path| path.join("crates").is_dir())
}

#[derive(Debug, PartialEq)]
struct Advisory {
    id: String,
    /// Such as `unmaintained`; none for a vulnerability.
    informational: Option<String>,
    title: String,
}

fn advisories_for(database: &Path, package: &LockedPackage) -> Result<Vec<Advisory>> {
    let directory = database.join("crates").join(&package.name);
    let mut found = Vec::new();
    for entry in directory.read_dir().into_iter().flatten() {
        let path = entry?.path();
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let advisory = affecting(&text, &package.version);
        found.extend(advisory.with_context(|| format!("{} is not an advisory", path.display()))?);
    }
    Ok(found)
}

/// The advisory, if it concerns this version.
fn affecting(text: &str, version: &str) -> Result<Option<Advisory>> {
    #[derive(Deserialize)]
    struct Document {
        advisory: Head,
        #[serde(default)]
        versions: Versions,
    }
    #[derive(Deserialize)]
    struct Head {
        id: String,
        informational: Option<String>,
        withdrawn: Option<toml::Value>,
    }
    #[derive(Default, Deserialize)]
    struct Versions {
        #[serde(default)]
        patched: Vec<VersionReq>,
        #[serde(default)]
        unaffected: Vec<VersionReq>,
    }
    let (_, rest) = text.split_once("```toml").context("it has no TOML in front")?;
    let (front, rest) = rest.split_once("```").context("its TOML has no end")?;
    let Document { advisory, versions } = toml::from_str(front)?;
    let version = Version::parse(version)?;
    let is_safe = versions.patched.iter().chain(&versions.unaffected).any(|safe| safe.matches(&version));
    if is_safe || advisory.withdrawn.is_some() {
        return Ok(None);
    }
    let title = rest.lines().find_map(|line| line.strip_prefix("# ")).unwrap_or_default().to_owned();
    Ok(Some(Advisory { id: advisory.id, informational: advisory.informational, title }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advisory(more: &str, versions: &str) -> String {
        format!(
            "```toml\n[advisory]\nid = \"RUSTSEC-2024-0001\"\npackage = \"a\"\ndate = \"2024-01-01\"\n{more}\n\
             [versions]\n{versions}\n```\n\n# It fails\n\nBadly.\n"
        )
    }

    #[test]
    fn only_versions_that_are_neither_patched_nor_unaffected_are_vulnerable() {
        let text = advisory("", "patched = [\">= 1.2.3\", \"^1.1.7\"]\nunaffected = [\"< 1.0.0\"]");
        for (version, is_affected) in
            [("1.2.3", false), ("1.1.8", false), ("0.9.0", false), ("1.1.6", true), ("1.0.0", true)]
        {
            let found = affecting(&text, version).unwrap();
            assert_eq!(found.is_some(), is_affected, "{version}");
        }
        let found = affecting(&text, "1.0.0").unwrap().unwrap();
        assert_eq!((found.id.as_str(), found.title.as_str()), ("RUSTSEC-2024-0001", "It fails"));
    }

    #[test]
    fn withdrawn_advisories_do_not_count_and_unmaintained_crates_are_no_vulnerability() {
        let withdrawn = advisory("withdrawn = \"2024-02-01\"", "patched = []");
        assert_eq!(affecting(&withdrawn, "1.0.0").unwrap(), None);
        let unmaintained = advisory("informational = \"unmaintained\"", "patched = []");
        let found = affecting(&unmaintained, "1.0.0").unwrap().unwrap();
        assert_eq!(found.informational.as_deref(), Some("unmaintained"));
        assert!(affecting("no advisory", "1.0.0").is_err());
    }

    #[test]
    fn the_advisories_of_a_crate_are_those_in_its_directory() {
        let database = std::env::temp_dir().join(format!("lessor-advisories-{}", std::process::id()));
        let directory = database.join("crates/a");
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("RUSTSEC-2024-0001.md"), advisory("", "patched = [\">= 2\"]")).unwrap();
        let lock = |name: &str| {
            let text = format!("[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\n");
            LockFile::parse(&text).unwrap().packages.remove(0)
        };
        let found = |name: &str| advisories_for(&database, &lock(name)).unwrap().len();
        let counts = (found("a"), found("b"));
        std::fs::remove_dir_all(&database).unwrap();
        assert_eq!(counts, (1, 0));
    }
}
