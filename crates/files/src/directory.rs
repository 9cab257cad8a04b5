//! Creates directories whose names survive a power loss.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

/// Creates a directory and its missing parents with this mode, and syncs each parent that names one of them: a power
/// loss that takes the name of a directory takes everything inside it. The last name is synced on every call, because
/// an earlier process may have ended between creating and syncing it.
pub fn create_dir_durably(path: &Path, mode: u32) -> io::Result<()> {
    let missing = path.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).count();
    DirBuilder::new().recursive(true).mode(mode).create(path)?;
    for named in path.ancestors().take(missing.max(1)) {
        let parent = named.parent().filter(|parent| !parent.as_os_str().is_empty());
        match File::open(parent.unwrap_or(Path::new("."))).and_then(|parent| parent.sync_all()) {
            // Somebody else created the directory for us, below a directory that we may not read.
            Err(error) if error.kind() == ErrorKind::PermissionDenied && missing == 0 => {}
            synced => synced?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn missing_parents_are_created_and_an_existing_directory_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        create_dir_durably(&path, 0o700).unwrap();
        create_dir_durably(&path, 0o755).unwrap();
        for path in [&path, path.parent().unwrap()] {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
    }
}
