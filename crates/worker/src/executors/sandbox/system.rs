//! The part of the system that a sandbox contains, read-only: programs, libraries, and the settings that they need. No
//! files of users, no state, no secrets.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::executors::scratch;

/// On most systems these are links into /usr.
const PROGRAMS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"];

const SETTINGS: [&str; 12] = [
    "alternatives",
    "ca-certificates.conf",
    "group",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "nsswitch.conf",
    "passwd",
    "ssl/certs",
    "ssl/openssl.cnf",
];
/// With a shared network, the machine's own file is mounted over it.
const RESOLVER: &str = "resolv.conf";

/// Copies of the settings in one directory, because a mount for each of them makes the start of a sandbox several times
/// slower. Removed when it is dropped.
#[derive(Debug)]
pub(super) struct System {
    pub(super) settings: TempDir,
}

impl System {
    pub(super) fn new(work_dir: &Path, key: &str) -> io::Result<System> {
        let settings = scratch::make(work_dir, key)?;
        fs::set_permissions(settings.path(), fs::Permissions::from_mode(0o755))?;
        for name in SETTINGS {
            let (from, to) = (Path::new("/etc").join(name), settings.path().join(name));
            if let Some(parent) = to.parent() {
                fs::create_dir_all(parent)?;
            }
            copy(&from, &to)?;
        }
        fs::write(settings.path().join(RESOLVER), "")?;
        Ok(System { settings })
    }

    /// A hidden directory below one of the mounted ones is covered with an empty one.
    pub(super) fn mount_arguments(&self, hidden: &[PathBuf]) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        for place in PROGRAMS.into_iter().filter(|place| Path::new(place).exists()) {
            match fs::read_link(place) {
                Ok(target) => arguments.extend(["--symlink".into(), target.into(), place.into()]),
                Err(_) => arguments.extend(["--ro-bind", place, place].map(OsString::from)),
            }
        }
        for hidden in hidden.iter().filter(|hidden| PROGRAMS.iter().any(|place| hidden.starts_with(place))) {
            arguments.extend(["--tmpfs".into(), hidden.into(), "--remount-ro".into(), hidden.into()]);
        }
        arguments.extend(["--ro-bind".into(), self.settings.path().into(), "/etc".into()]);
        arguments
    }
}

/// Leaves out files that are missing or not readable.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let Ok(about) = fs::symlink_metadata(from) else { return Ok(()) };
    if about.is_symlink() {
        return symlink(fs::read_link(from)?, to);
    }
    if about.is_file() {
        let Ok(content) = fs::read(from) else { return Ok(()) };
        return fs::write(to, content);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_copied_and_secrets_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let system = System::new(dir.path(), "key").unwrap();
        let passwd = system.settings.path().join("passwd");
        assert_eq!(fs::read(passwd).unwrap(), fs::read("/etc/passwd").unwrap());
        assert!(!system.settings.path().join("shadow").exists());
        drop(system);
        assert_eq!(dir.path().read_dir().unwrap().count(), 0);
    }
}
