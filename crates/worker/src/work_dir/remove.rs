//! Removes a directory with everything in it, even if an action changed permissions.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A process that is dying may still add a file while its directory is being removed.
const MAX_TRIES: u32 = 5;

/// Links are removed and never followed. A missing directory is not an error.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        let error = match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => error,
        };
        tries += 1;
        match error.kind() {
            _ if tries >= MAX_TRIES => return Err(error),
            io::ErrorKind::PermissionDenied => open_up(path)?,
            io::ErrorKind::DirectoryNotEmpty => {}
            _ => return Err(error),
        }
    }
}

/// Gives the owner all permissions on the directories, which removing their entries requires.
fn open_up(path: &Path) -> io::Result<()> {
    let mut rest = vec![path.to_owned()];
    while let Some(directory) = rest.pop() {
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                rest.push(entry.path());
            }
        }
    }
    Ok(())
}
