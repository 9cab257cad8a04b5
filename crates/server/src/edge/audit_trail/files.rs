//! The files of the audit trail: their names, their bounds and their modes.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The name of the directory in the data directory.
pub const DIRECTORY: &str = "audit";
/// Largest file; a line that does not fit begins the next one.
pub const MAX_FILE_BYTES: u64 = 16 * 1_024 * 1_024;
/// Most files; the oldest one goes when there are more.
pub const MAX_FILES: usize = 64;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Most names in a row that something else may have.
const MAX_TAKEN_NAMES: u64 = 1_024;
const PREFIX: &str = "audit-";
const SUFFIX: &str = ".jsonl";

/// The files, oldest first, each with the number of its first line. None when there is no directory.
pub(super) fn list(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        files.extend(first_line(&path).map(|first| (first, path)));
    }
    files.sort();
    Ok(files)
}

/// The number of the first line of a file, by its name.
fn first_line(path: &Path) -> Option<u64> {
    path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?.parse().ok()
}

/// Creates the directory, if it is missing.
pub(super) fn create_directory(directory: &Path) -> io::Result<()> {
    if !directory.exists() {
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
        directory.parent().map_or(Ok(()), sync)?;
    }
    Ok(())
}

/// Creates the file whose first line has this number. An empty file of this name is used: the server created it and failed
/// before the first line. What else has the name stays as it is, for the verification to find, and the file gets the next
/// name that is free.
pub(super) fn create(directory: &Path, first: u64) -> io::Result<File> {
    for number in first..first.saturating_add(MAX_TAKEN_NAMES) {
        let path = directory.join(format!("{PREFIX}{number:020}{SUFFIX}"));
        match OpenOptions::new().append(true).create_new(true).mode(FILE_MODE).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if let Some(file) = open_empty(&path)? {
                    sync(directory)?;
                    return Ok(file);
                }
            }
            created => {
                let file = created?;
                sync(directory)?;
                return Ok(file);
            }
        }
    }
    Err(io::Error::new(ErrorKind::AlreadyExists, format!("no file name from number {first} on is free")))
}

/// Opens a file without content, and none if the path is anything else.
fn open_empty(path: &Path) -> io::Result<Option<File>> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_file() || found.len() > 0 {
        return Ok(None);
    }
    let file = OpenOptions::new().append(true).open(path)?;
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(Some(file))
}

/// Makes the names in a directory durable.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}
