//! Reads Cargo.lock: every crate that a build on any platform may use, with its checksum.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

pub(crate) const NAME: &str = "Cargo.lock";

#[derive(Deserialize)]
pub(crate) struct LockFile {
    #[serde(rename = "package")]
    pub packages: Vec<LockedPackage>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct LockedPackage {
    pub name: String,
    pub version: String,
    /// None for our own crates.
    pub source: Option<String>,
    /// The SHA-256 of the crate's archive.
    pub checksum: Option<String>,
    /// Each is a name, with a version where the name alone is not enough.
    #[serde(default)]
    dependencies: Vec<String>,
}

impl LockFile {
    pub(crate) fn load(root: &Path) -> Result<LockFile> {
        let path = root.join(NAME);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        LockFile::parse(&text)
    }

    pub(crate) fn parse(text: &str) -> Result<LockFile> {
        toml::from_str(text).context("cannot read Cargo.lock")
    }

    /// The packages that a package names as its dependencies.
    pub(crate) fn dependencies_of<'a>(
        &'a self,
        package: &'a LockedPackage,
    ) -> impl Iterator<Item = &'a LockedPackage> {
        package.dependencies.iter().filter_map(|named| {
            let mut words = named.split(' ');
            let (name, version) = (words.next()?, words.next());
            self.packages
                .iter()
                .find(|other| other.name == name && version.is_none_or(|version| other.version == version))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dependency_is_found_by_its_name_and_by_its_version_where_there_are_two() {
        let lock = LockFile::parse(
            "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\ndependencies = [\"b 2.0.0\", \"c\"]\n\
             [[package]]\nname = \"b\"\nversion = \"1.0.0\"\n[[package]]\nname = \"b\"\nversion = \"2.0.0\"\n\
             [[package]]\nname = \"c\"\nversion = \"3.0.0\"\n",
        )
        .unwrap();
        let found: Vec<_> = lock.dependencies_of(&lock.packages[0]).map(|it| it.version.as_str()).collect();
        assert_eq!(found, ["2.0.0", "3.0.0"]);
    }
}
