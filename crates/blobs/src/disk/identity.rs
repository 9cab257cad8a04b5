//! Opens the directory of a content store: checks its identity and takes its lock.
//!
//! The identity file is written last when a store is created, and never changes. A directory that holds
//! anything else is refused before anything in it is touched.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use files::{IDENTITY_BYTES, Identity, LockError};

const NAME: &str = "IDENTITY";
const TEMP_NAME: &str = "IDENTITY.new";
const LOCK_NAME: &str = "LOCK";
pub(super) const PACKS: &str = "packs";
pub(super) const FILES: &str = "files";
pub(super) const TEMP: &str = "temp";

const MAGIC: [u8; 8] = *b"LESSOR-B";
const VERSION: u32 = 1;

/// Why a directory cannot be opened as a store.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{} holds {name:?} and no content store; give the store a directory of its own", path.display())]
    Foreign { path: PathBuf, name: String },
    #[error("the identity file of the content store in {} is damaged", .0.display())]
    Damaged(PathBuf),
    #[error("the content store in {} has format version {version}; this program reads up to {VERSION}", path.display())]
    NewerVersion { path: PathBuf, version: u32 },
    #[error("the content store in {} is in use by another process", .0.display())]
    InUse(PathBuf),
    #[error("cannot {verb} {}: {source}", path.display())]
    Io { verb: &'static str, path: PathBuf, source: io::Error },
    #[error(transparent)]
    Store(#[from] crate::Error),
}

/// The directory of a store, locked while this value lives.
pub struct StoreDir {
    /// Kept open to sync the file system through.
    pub directory: File,
    pub id: [u8; 16],
    _lock: File,
}

impl StoreDir {
    /// Opens the directory, making a store of it if it is missing or empty.
    pub fn open(root: &Path) -> Result<StoreDir, OpenError> {
        let io = |verb, path: &Path| {
            let path = path.to_path_buf();
            move |source| OpenError::Io { verb, path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(root).map_err(io("create", root))?;
        check_ours(root)?;
        let lock_path = root.join(LOCK_NAME);
        let lock = files::lock(&lock_path).map_err(|error| match error {
            LockError::InUse => OpenError::InUse(root.to_path_buf()),
            LockError::Io(error) => io("lock", &lock_path)(error),
        })?;
        for name in [PACKS, FILES, TEMP] {
            let path = root.join(name);
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(io("create", &path))?;
        }
        let path = root.join(NAME);
        let id = match fs::read(&path) {
            Ok(bytes) => decode(root, &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = random().map_err(io("draw a number for", root))?;
                files::replace(root, NAME, TEMP_NAME, &encode(id)).map_err(io("write", &path))?;
                id
            }
            Err(error) => return Err(io("read", &path)(error)),
        };
        let directory = File::open(root).map_err(io("open", root))?;
        Ok(StoreDir { directory, id, _lock: lock })
    }
}

/// Without an identity, only what an interrupted first start leaves behind is no reason to refuse.
fn check_ours(root: &Path) -> Result<(), OpenError> {
    let io = |source| OpenError::Io { verb: "list", path: root.to_path_buf(), source };
    let mut foreign = None;
    for entry in fs::read_dir(root).map_err(io)? {
        let name = entry.map_err(io)?.file_name().to_string_lossy().into_owned();
        match name.as_str() {
            NAME => return Ok(()),
            // What a file system puts into its root.
            TEMP_NAME | LOCK_NAME | "lost+found" => {}
            PACKS | FILES | TEMP if is_empty_directory(&root.join(&name)) => {}
            _ => foreign = Some(name),
        }
    }
    match foreign {
        Some(name) => Err(OpenError::Foreign { path: root.to_path_buf(), name }),
        None => Ok(()),
    }
}

fn is_empty_directory(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

fn encode(id: [u8; 16]) -> [u8; IDENTITY_BYTES] {
    Identity { magic: MAGIC, version: VERSION, id }.encode()
}

fn decode(root: &Path, bytes: &[u8]) -> Result<[u8; 16], OpenError> {
    let damaged = || OpenError::Damaged(root.to_path_buf());
    let Identity { version, id, .. } = Identity::decode(MAGIC, bytes).ok_or_else(damaged)?;
    if version > VERSION {
        return Err(OpenError::NewerVersion { path: root.to_path_buf(), version });
    }
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_keeps_its_identity() {
        let root = tempfile::tempdir().unwrap();
        let first = StoreDir::open(root.path()).unwrap().id;
        assert_eq!(StoreDir::open(root.path()).unwrap().id, first);
    }

    /// D26.
    #[test]
    fn a_foreign_directory_is_refused_and_left_as_it_was() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("thesis.txt"), "years of work").unwrap();
        assert!(
            matches!(StoreDir::open(root.path()), Err(OpenError::Foreign { name, .. }) if name == "thesis.txt")
        );
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn packs_without_an_identity_are_not_taken_for_an_empty_directory() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(PACKS)).unwrap();
        fs::write(root.path().join(PACKS).join("00000001.pack"), "").unwrap();
        assert!(matches!(StoreDir::open(root.path()), Err(OpenError::Foreign { .. })));
    }

    /// D23.
    #[test]
    fn a_store_in_use_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let _home = StoreDir::open(root.path()).unwrap();
        assert!(matches!(StoreDir::open(root.path()), Err(OpenError::InUse(_))));
    }

    /// D25.
    #[test]
    fn a_damaged_or_newer_identity_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(NAME);
        fs::write(&path, "?").unwrap();
        assert!(matches!(StoreDir::open(root.path()), Err(OpenError::Damaged(_))));
        fs::write(&path, Identity { magic: MAGIC, version: 2, id: [7; 16] }.encode()).unwrap();
        assert!(matches!(StoreDir::open(root.path()), Err(OpenError::NewerVersion { version: 2, .. })));
    }
}
