//! The cluster key: the file that all nodes of a cluster share, with the content of a `lease.key`.
//!
//! The keys of lease ids, tokens, push secrets and the audit trail are derived from it, as from the lease key of a data
//! directory. So a migration that keeps the key keeps every lease and token valid.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};

use crate::data_dir;

const KEY_BYTES: usize = 32;
const KEY_MODE: u32 = 0o600;
/// Keeps the fingerprint apart from every key that is derived in the same way.
const PRINT_CONTEXT: &str = "lessor 2026 cluster key fingerprint v1";

/// The key of a cluster. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ClusterKey([u8; KEY_BYTES]);

impl ClusterKey {
    pub(crate) fn generate() -> Result<ClusterKey> {
        let mut key = [0; KEY_BYTES];
        getrandom::fill(&mut key)
            .map_err(|error| anyhow::anyhow!("the system has no random numbers: {error}"))?;
        Ok(ClusterKey(key))
    }

    pub(crate) fn from_bytes(key: [u8; KEY_BYTES]) -> ClusterKey {
        ClusterKey(key)
    }

    /// Reads the key; `None` when there is no such file.
    pub(crate) fn find(path: &Path) -> Result<Option<ClusterKey>> {
        let bytes = match fs::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read the cluster key {}", path.display()))?,
        };
        let key = data_dir::parse_lease_key(&bytes).with_context(|| {
            format!("{} is not a key of 32 bytes with its checksum; restore the file", path.display())
        })?;
        Ok(Some(ClusterKey(key)))
    }

    pub(crate) fn read(path: &Path) -> Result<ClusterKey> {
        ClusterKey::find(path)?.with_context(|| {
            format!(
                "the cluster key {} is missing; copy it from another node, or create a new cluster with `lessor cluster init`",
                path.display()
            )
        })
    }

    /// Writes the key to a new file that only its owner can read.
    pub(crate) fn create(&self, path: &Path) -> Result<()> {
        let written = || -> std::io::Result<()> {
            let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(KEY_MODE).open(path)?;
            file.write_all(&files::append_checksum(&self.0))?;
            file.sync_all()?;
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            fs::File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
        };
        written().with_context(|| format!("cannot write the cluster key {}", path.display()))
    }

    /// The fingerprint, which the database stores. It says nothing about the key.
    pub(crate) fn print(&self) -> [u8; 16] {
        let mut print = [0; 16];
        print.copy_from_slice(&blake3::derive_key(PRINT_CONTEXT, &self.0)[..16]);
        print
    }

    /// The key from which the server derives its own.
    pub(crate) fn lease_key(&self) -> [u8; KEY_BYTES] {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_key_is_created_once_for_its_owner_only_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.key");
        assert!(ClusterKey::find(&path).unwrap().is_none());
        assert!(ClusterKey::read(&path).err().unwrap().to_string().contains("lessor cluster init"));
        let key = ClusterKey::generate().unwrap();
        key.create(&path).unwrap();
        assert!(ClusterKey::read(&path).unwrap() == key);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(ClusterKey::generate().unwrap().create(&path).is_err(), "a key is never overwritten");
        fs::write(&path, "short").unwrap();
        assert!(ClusterKey::read(&path).is_err());
    }
}
