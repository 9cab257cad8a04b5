//! Finds the program of a command (R45): an absolute path, a path relative to the working directory, or a name that is
//! searched in the PATH of the command's environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The search path without PATH, as in `execvp`.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// A command that cannot be run, as in a shell: the exit code and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotRunnable {
    pub exit_code: i32,
    pub why: String,
}

impl NotRunnable {
    pub(super) fn not_found(name: &str) -> NotRunnable {
        NotRunnable { exit_code: 127, why: format!("{name}: command not found") }
    }

    /// The operating system does not start the program.
    pub(super) fn refused(name: &str, error: &std::io::Error) -> NotRunnable {
        let exit_code = if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 };
        NotRunnable { exit_code, why: format!("{name}: {error}") }
    }
}

/// The program's absolute path. The operating system decides whether it can be started.
pub(super) fn program(
    name: &str,
    working_directory: &Path,
    search_path: Option<&str>,
) -> Result<PathBuf, NotRunnable> {
    if name.is_empty() {
        return Err(NotRunnable::not_found("''"));
    }
    if name.contains('/') {
        return Ok(working_directory.join(name));
    }
    let mut forbidden = false;
    for directory in search_path.unwrap_or(DEFAULT_PATH).split(':') {
        let candidate = working_directory.join(directory).join(name);
        match fs::metadata(&candidate) {
            Ok(found) if !found.is_file() => {}
            Ok(found) if found.permissions().mode() & 0o111 == 0 => forbidden = true,
            Ok(_) => return Ok(candidate),
            Err(_) => {}
        }
    }
    if forbidden {
        Err(NotRunnable { exit_code: 126, why: format!("{name}: Permission denied") })
    } else {
        Err(NotRunnable::not_found(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r45_a_path_is_taken_from_the_working_directory_and_a_name_from_path() {
        let dir = tempfile::tempdir().unwrap();
        let tool = dir.path().join("bin/tool");
        fs::create_dir(dir.path().join("bin")).unwrap();
        fs::write(&tool, "").unwrap();
        let find = |name: &str, path: &str| program(name, dir.path(), Some(path));
        assert_eq!(find("tool", "bin").unwrap_err().exit_code, 126, "it is there, but not executable");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("tool", "/nowhere:bin"), Ok(tool.clone()));
        assert_eq!(find("bin/tool", ""), Ok(tool.clone()));
        assert_eq!(find("/bin/sh", ""), Ok(PathBuf::from("/bin/sh")));
        assert_eq!(find("bin", "."), Err(NotRunnable::not_found("bin")), "a directory is no program");
        assert_eq!(find("tool", "/nowhere"), Err(NotRunnable::not_found("tool")));
        assert!(program("sh", dir.path(), None).is_ok());
    }
}
