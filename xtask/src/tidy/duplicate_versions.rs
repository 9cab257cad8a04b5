//! Checks that Cargo.lock has one version of each crate, unless an older one is listed with its reason.
//!
//! Two versions of a crate are compiled twice, and a fault that is mended in one may still be in the other.

use std::collections::BTreeMap;

use semver::Version;

use super::Finding;
use super::repository::Repository;
use crate::lock_file::{LockFile, NAME};

/// Versions beside the newest one: the crate, the release series, and who needs it and why.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("base64", "0.22", "bollard, jsonwebtoken and tonic are not at 0.23 yet"),
    ("bit-vec", "0.9", "yasna of rcgen, in tests and benchmarks only"),
    ("bitflags", "1.3", "defmt, an optional part of jiff that is not built"),
    ("const-oid", "0.9", "der 0.7 of tokio-postgres-rustls"),
    ("foldhash", "0.1", "hashbrown 0.15 of petgraph, when stubs are generated"),
    ("getrandom", "0.2", "ring and jsonwebtoken are not at 0.4 yet"),
    ("hashbrown", "0.15", "petgraph, when stubs are generated"),
    ("hashbrown", "0.16", "governor"),
    ("rand_core", "0.6", "signature 2 of jsonwebtoken"),
    ("syn", "2", "macro crates are moving to 3; at build time only"),
    ("synstructure", "0.13", "asn1-rs-derive; at build time only"),
    ("wasi", "0.11", "getrandom 0.2, on WebAssembly only"),
    ("windows-sys", "0.52", "ring, on Windows only"),
];

pub(super) fn check(repository: &Repository) -> Vec<Finding> {
    let Some(file) = repository.file(NAME) else { return vec![Finding::new(NAME, 0, "is missing")] };
    match LockFile::parse(&file.text) {
        Ok(lock) => check_lock(&lock, ALLOWED),
        Err(error) => vec![Finding::new(NAME, 0, format!("{error:#}"))],
    }
}

fn check_lock(lock: &LockFile, allowed: &[(&str, &str, &str)]) -> Vec<Finding> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &lock.packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let mut used = Vec::new();
    let mut messages = Vec::new();
    for (name, mut versions) in versions {
        versions.sort_by_key(|version| Version::parse(version).ok());
        let newest = versions.pop().unwrap_or_default();
        for version in versions {
            let is_listed = |(_, (known, series, _)): &(usize, &(&str, &str, &str))| {
                *known == name && is_of(version, series)
            };
            match allowed.iter().enumerate().find(is_listed) {
                Some((index, _)) => used.push(index),
                None => messages.push(format!(
                    "{name} {version} is there beside {newest}: bring its users to one version (`cargo tree --invert \
                     {name}@{version}`), or list it with a reason in duplicate_versions.rs"
                )),
            }
        }
    }
    let stale = allowed.iter().enumerate().filter(|(index, _)| !used.contains(index));
    messages.extend(stale.map(|(_, (name, series, _))| {
        format!("{name} {series} is listed in duplicate_versions.rs, but is no duplicate any more: remove the line")
    }));
    messages.into_iter().map(|message| Finding::new(NAME, 0, message)).collect()
}

/// Whether a version is of a series, such as 0.22.1 of 0.22.
fn is_of(version: &str, series: &str) -> bool {
    version.strip_prefix(series).is_some_and(|rest| rest.starts_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(packages: &[(&str, &str)], allowed: &[(&str, &str, &str)]) -> Vec<String> {
        let package = |(name, version): &(&str, &str)| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n")
        };
        let lock = LockFile::parse(&packages.iter().map(package).collect::<String>()).unwrap();
        check_lock(&lock, allowed).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn an_older_version_needs_a_reason() {
        let packages = [("a", "0.9.1"), ("a", "0.10.0"), ("b", "1.0.0")];
        let found = messages(&packages, &[]);
        assert!(found.len() == 1 && found[0].starts_with("a 0.9.1 is there beside 0.10.0: "), "{found:?}");
        assert_eq!(messages(&packages, &[("a", "0.9", "b")]), [""; 0]);
        assert_eq!(messages(&packages, &[("a", "0.1", "b")]).len(), 2, "0.10 is not of the series 0.1");
    }

    #[test]
    fn a_reason_for_a_duplicate_that_is_gone_is_found() {
        let found = messages(&[("a", "1.0.0")], &[("a", "0.9", "b")]);
        assert!(found[0].contains("is no duplicate any more"), "{found:?}");
    }
}
