//! The data directory: who owns it, and the small files beside the ledger.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use ledger::ClusterId;

use crate::ledger_backend;

pub(crate) const LEDGER: &str = "ledger";
const LEASE_KEY: &str = "lease.key";
/// What is lost with the key of an existing directory.
const MISSING_LEASE_KEY: &str = "the lease key is missing, and a new one is created: leases, task tokens and page tokens \
    that were given out earlier are refused, and their tasks run again after the leases expire; the headers and secrets of \
    push targets cannot be decrypted and must be configured anew; earlier lines of the audit trail cannot be verified";
/// The name under which a migration fills a ledger, until the ledger is complete.
pub(crate) const MIGRATING: &str = "ledger.migrating";
/// Names the cluster that a directory belongs to, if its ledger is in a database.
const CLUSTER: &str = "cluster.id";
const LISTEN: &str = "listen";
/// The lock of the process that uses the directory of a node.
const PROCESS_LOCK: &str = "process.lock";
/// The directory within that of a node for a process that replaces the one that uses it.
const SECOND_SLOT: &str = "2";
/// Names in a data directory that appear only after the ledger has its identity.
const WRITTEN_AFTER_THE_LEDGER: [&str; 2] = [LEASE_KEY, ledger_backend::BESIDE_LEDGER];
const LEASE_KEY_BYTES: usize = 32;

/// The directory holds keys and payloads, so other users of the machine have no access.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The directory cannot be used. Nothing was touched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("{0} is not empty and holds no ledger of Lessor; nothing was touched; choose another directory")]
    Foreign(String),
    #[error("{0} holds no ledger; start once with --init to create a new ledger there")]
    Empty(String),
    #[error(
        "{ledger} is empty or holds no ledger, but {beside} beside it belongs to one; nothing was touched; restore the \
         ledger from a copy, or choose another directory"
    )]
    LostLedger { ledger: String, beside: &'static str },
    #[error(
        "{0} holds a migration that was not finished; run `lessor migrate` again, or remove {0}/{MIGRATING}"
    )]
    Migrating(String),
    #[error(
        "{0} belongs to a node whose ledger is in a database; use the configuration of that node, or another directory"
    )]
    OfACluster(String),
    #[error(
        "{0} holds a ledger of its own, but the configuration names a database; after `lessor migrate` move the old ledger \
         away (mv {0}/{LEDGER} {0}/{LEDGER}.old), or choose another directory"
    )]
    OwnLedger(String),
    #[error("{0} belongs to a node of another cluster; choose another directory")]
    OtherCluster(String),
    #[error(
        "{0} is in use by another lessor process; stop that process, or choose another directory; a node of a cluster is \
         replaced by `lessor serve --replace`"
    )]
    InUse(String),
    #[error("cannot {verb} {path}: {why}")]
    Unusable { verb: &'static str, path: String, why: std::io::Error },
    #[error("{0} is damaged: it is not a key of 32 bytes with its checksum; restore or remove the file")]
    BadLeaseKey(String),
}

impl Refused {
    fn unusable(verb: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Refused {
        let path = path.display().to_string();
        move |why| Refused::Unusable { verb, path, why }
    }
}

/// Whether a directory holds a ledger and its keys.
pub(crate) fn is_ours(path: &Path) -> bool {
    path.join(LEDGER).is_dir() && path.join(LEASE_KEY).is_file()
}

/// The lease key of a directory that another process may own. Nothing is created or changed.
pub(crate) fn read_lease_key(data: &Path) -> Result<[u8; LEASE_KEY_BYTES]> {
    let path = data.join(LEASE_KEY);
    let bytes = fs::read(&path).map_err(Refused::unusable("read", &path))?;
    Ok(parse_lease_key(&bytes).ok_or_else(|| Refused::BadLeaseKey(path.display().to_string()))?)
}

/// Earlier versions wrote the key without a checksum.
pub(crate) fn parse_lease_key(bytes: &[u8]) -> Option<[u8; LEASE_KEY_BYTES]> {
    let checked = || files::verify_checksum(bytes).and_then(|key| key.try_into().ok());
    bytes.try_into().ok().or_else(checked)
}

/// The directories of the processes of one node: while one process replaces another, both run.
pub(crate) fn slots(data: &Path) -> [PathBuf; 2] {
    [data.to_owned(), data.join(SECOND_SLOT)]
}

pub(crate) struct DataDir {
    path: PathBuf,
    /// Held for the life of the process.
    _lock: Option<fs::File>,
    /// Whether there was no ledger in it before.
    pub is_new: bool,
}

impl DataDir {
    /// Opens the directory. A missing or empty directory is initialized if `may_create`; a directory with other files in it
    /// is refused, and so is one that has lost its ledger.
    pub(crate) fn open(path: &Path, may_create: bool) -> Result<DataDir> {
        let ledger = path.join(LEDGER);
        let is_begun = ledger.exists();
        let shown = || path.display().to_string();
        if !is_begun && path.join(MIGRATING).exists() {
            return Err(Refused::Migrating(shown()).into());
        }
        if !is_begun && path.join(CLUSTER).exists() {
            return Err(Refused::OfACluster(shown()).into());
        }
        if !is_begun && !is_blank(path).map_err(Refused::unusable("read", path))? {
            return Err(Refused::Foreign(shown()).into());
        }
        if !is_begun && !may_create {
            return Err(Refused::Empty(shown()).into());
        }
        if is_begun {
            // A ledger that may not be read is there all the same, and must not be taken for a lost one.
            ledger.read_dir().map_err(Refused::unusable("read", &ledger))?;
        }
        let is_new = !ledger_backend::is_initialized(&ledger);
        let beside = WRITTEN_AFTER_THE_LEDGER.into_iter().find(|name| path.join(name).exists());
        if let Some(beside) = beside.filter(|_| is_new) {
            return Err(Refused::LostLedger { ledger: ledger.display().to_string(), beside }.into());
        }
        files::create_dir_durably(path, DIRECTORY_MODE).map_err(Refused::unusable("create", path))?;
        close_to_others(path);
        // First of all, so that a start which fails or is killed later leaves a directory that the next start takes up.
        files::create_dir_durably(&ledger, DIRECTORY_MODE).map_err(Refused::unusable("create", &ledger))?;
        Ok(DataDir { path: path.to_path_buf(), _lock: None, is_new })
    }

    /// Opens the directory of a node whose ledger is in the database of a cluster. A missing or empty directory is
    /// initialized, and so is one whose ledger was migrated away.
    pub(crate) fn open_for_node(path: &Path, cluster: ClusterId) -> Result<DataDir> {
        let shown = || path.display().to_string();
        let marker = path.join(CLUSTER);
        let is_blank = is_blank(path).map_err(Refused::unusable("read", path))?;
        if path.join(LEDGER).exists() {
            return Err(Refused::OwnLedger(shown()).into());
        }
        match fs::read_to_string(&marker) {
            Ok(found) if found.trim() == cluster.to_string() => {}
            Ok(_) => return Err(Refused::OtherCluster(shown()).into()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if !is_blank && !path.join(LEASE_KEY).is_file() {
                    return Err(Refused::Foreign(shown()).into());
                }
                files::create_dir_durably(path, DIRECTORY_MODE).map_err(Refused::unusable("create", path))?;
                replace(path, CLUSTER, format!("{cluster}\n").as_bytes())?;
            }
            Err(error) => return Err(Refused::unusable("read", &marker)(error).into()),
        }
        close_to_others(path);
        let lock = files::lock(&path.join(PROCESS_LOCK)).map_err(|error| match error {
            files::LockError::InUse => Refused::InUse(shown()),
            files::LockError::Io(error) => Refused::unusable("lock", path)(error),
        })?;
        Ok(DataDir { path: path.to_path_buf(), _lock: Some(lock), is_new: is_blank })
    }

    /// As [`DataDir::open_for_node`], for a process that replaces another one, which may use the directory.
    pub(crate) fn open_to_replace(path: &Path, cluster: ClusterId) -> Result<DataDir> {
        let [first, second] = slots(path);
        match DataDir::open_for_node(&first, cluster) {
            Err(error) if matches!(error.downcast_ref(), Some(Refused::InUse(_))) => {
                DataDir::open_for_node(&second, cluster)
            }
            opened => opened,
        }
    }

    /// Prepares a directory for the ledger of a cluster that is migrated into it. What a migration that was cut off has left
    /// is removed.
    pub(crate) fn begin_migration(path: &Path, cluster: ClusterId) -> Result<PathBuf> {
        let shown = || path.display().to_string();
        let temporary = path.join(MIGRATING);
        let is_node = fs::read_to_string(path.join(CLUSTER)).is_ok_and(|id| id.trim() == cluster.to_string());
        if path.join(LEDGER).exists() {
            anyhow::bail!("{} holds a ledger already; nothing was changed; name an empty directory", shown());
        }
        if !temporary.exists() && !is_node && !is_blank(path).map_err(Refused::unusable("read", path))? {
            return Err(Refused::Foreign(shown()).into());
        }
        files::create_dir_durably(path, DIRECTORY_MODE).map_err(Refused::unusable("create", path))?;
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(Refused::unusable("remove", &temporary))?;
        }
        files::create_dir_durably(&temporary, DIRECTORY_MODE)
            .map_err(Refused::unusable("create", &temporary))?;
        Ok(temporary)
    }

    /// Makes a ledger that was migrated into the directory its own, with the key of its leases.
    pub(crate) fn finish_migration(path: &Path, key: &[u8; LEASE_KEY_BYTES]) -> Result<()> {
        let (temporary, ledger) = (path.join(MIGRATING), path.join(LEDGER));
        replace(path, LEASE_KEY, &files::append_checksum(key))?;
        fs::rename(&temporary, &ledger).map_err(Refused::unusable("rename", &temporary))?;
        // Removed last: a directory with a ledger does not ask for it.
        let _ = fs::remove_file(path.join(CLUSTER));
        fs::File::open(path).and_then(|dir| dir.sync_all()).map_err(Refused::unusable("sync", path))?;
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The key from which the keys of lease ids, task tokens, page tokens, push secrets and the audit trail are derived,
    /// created at first use.
    pub(crate) fn lease_key(&self) -> Result<[u8; LEASE_KEY_BYTES]> {
        let path = self.path.join(LEASE_KEY);
        match fs::read(&path) {
            Ok(bytes) => self.decode_lease_key(&bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if !self.is_new {
                    tracing::warn!(path = %path.display(), "{MISSING_LEASE_KEY}");
                }
                let mut key = [0; LEASE_KEY_BYTES];
                getrandom::fill(&mut key)
                    .map_err(|error| anyhow::anyhow!("the system has no random numbers: {error}"))?;
                self.write_lease_key(&key)?;
                Ok(key)
            }
            Err(error) => Err(Refused::unusable("read", &path)(error).into()),
        }
    }

    /// A key without a checksum gets one.
    fn decode_lease_key(&self, bytes: &[u8]) -> Result<[u8; LEASE_KEY_BYTES]> {
        let shown = || self.path.join(LEASE_KEY).display().to_string();
        let key = parse_lease_key(bytes).ok_or_else(|| Refused::BadLeaseKey(shown()))?;
        if bytes.len() == LEASE_KEY_BYTES
            && let Err(error) = self.write_lease_key(&key)
        {
            tracing::warn!(error = format!("{error:#}"), "the lease key has no checksum yet");
        }
        Ok(key)
    }

    fn write_lease_key(&self, key: &[u8; LEASE_KEY_BYTES]) -> Result<()> {
        replace(&self.path, LEASE_KEY, &files::append_checksum(key))
    }

    /// Writes the listen address, for scripts that started the server on a free port.
    pub(crate) fn write_listen(&self, address: &str) -> Result<()> {
        replace(&self.path, LISTEN, format!("{address}\n").as_bytes())
    }

    pub(crate) fn remove_listen(&self) {
        // The file is only a hint, and the next start replaces a stale one.
        let _ = fs::remove_file(self.path.join(LISTEN));
    }
}

/// Replaces a small file of a directory as a whole, durably, readable by its owner only.
pub(crate) fn replace(directory: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    files::replace(directory, name, &format!("{name}.tmp"), bytes)
        .with_context(|| format!("cannot write {}", directory.join(name).display()))
}

/// Takes away the access of other users, which an earlier version or a restored backup gave them. A directory of another
/// owner is used as it is.
fn close_to_others(data: &Path) {
    let directories = [data.join(LEDGER), data.join(server::audit_trail::DIRECTORY)];
    let entries = directories.iter().flat_map(fs::read_dir).flatten().flatten().map(|entry| entry.path());
    let own = [data.to_owned(), data.join(LEASE_KEY)].into_iter().chain(directories.clone());
    for path in own.chain(entries) {
        let Ok(about) = fs::symlink_metadata(&path) else { continue };
        let mode = if about.is_dir() { DIRECTORY_MODE } else { FILE_MODE };
        if about.is_symlink() || about.permissions().mode() & 0o077 == 0 {
            continue;
        }
        match fs::set_permissions(&path, fs::Permissions::from_mode(mode)) {
            Ok(()) => {
                tracing::info!(path = %path.display(), mode = format!("{mode:o}"), "other users have no access any more")
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "other users may have access: their access could not be removed")
            }
        }
    }
}

/// Whether the directory is empty or missing.
fn is_blank(path: &Path) -> std::io::Result<bool> {
    match fs::read_dir(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(true),
        // mkfs creates this directory at the root of a new volume.
        entries => Ok(!entries?.any(|entry| entry.is_ok_and(|entry| entry.file_name() != "lost+found"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_volume_is_an_empty_directory() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("lost+found")).unwrap();
        assert!(DataDir::open(dir.path(), true).unwrap().is_new);
    }

    #[test]
    fn missing_parents_are_made() {
        let dir = tempfile::tempdir().unwrap();
        assert!(DataDir::open(&dir.path().join("a/b/c"), true).unwrap().is_new);
        assert!(DataDir::open(&dir.path().join("a/b/c"), true).unwrap().is_new);
    }

    #[test]
    fn d26_a_directory_with_other_things_in_it_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.txt"), "do not touch").unwrap();
        let error = DataDir::open(dir.path(), true).err().unwrap();
        assert!(error.is::<Refused>());
        let file = DataDir::open(&dir.path().join("thesis.txt"), true).err().unwrap();
        assert!(file.is::<Refused>() && file.to_string().contains("thesis.txt"), "{file}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn d26_an_empty_history_never_begins_unasked() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path().to_path_buf(), dir.path().join("missing")] {
            let error = DataDir::open(&path, false).err().unwrap();
            assert!(error.to_string().contains("--init"), "{error}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_lease_key_is_made_once_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(&dir.path().join("data"), true).unwrap();
        let key = data.lease_key().unwrap();
        assert_eq!(data.lease_key().unwrap(), key);
        assert_ne!(key, [0; 32]);
    }

    #[test]
    fn a_damaged_lease_key_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), true).unwrap();
        data.lease_key().unwrap();
        let sound = fs::read(dir.path().join(LEASE_KEY)).unwrap();
        let mut flipped = sound.clone();
        flipped[3] ^= 4;
        for damaged in [&flipped[..], &sound[..20], b"short"] {
            fs::write(dir.path().join(LEASE_KEY), damaged).unwrap();
            let error = data.lease_key().unwrap_err();
            assert!(error.is::<Refused>() && error.to_string().contains("damaged"), "{error}");
        }
    }

    #[test]
    fn the_lease_key_of_an_earlier_version_is_kept_and_gets_a_checksum() {
        let dir = tempfile::tempdir().unwrap();
        let data = DataDir::open(dir.path(), true).unwrap();
        fs::write(dir.path().join(LEASE_KEY), [7; 32]).unwrap();
        for _ in 0..2 {
            assert_eq!(data.lease_key().unwrap(), [7; 32]);
            assert_eq!(fs::read(dir.path().join(LEASE_KEY)).unwrap(), files::append_checksum(&[7; 32]));
        }
    }

    #[test]
    fn an_initialization_that_was_interrupted_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        for name in [LEDGER, "content"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        assert!(DataDir::open(dir.path(), true).is_ok());
    }
}
