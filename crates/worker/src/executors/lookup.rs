//! Which file a command's first argument names (R45): an absolute path, a path relative to the working directory, or
//! a name that is looked for in the PATH of the command's environment.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where a name is looked for when there is no PATH at all, as `execvp` does.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// As a shell says it: the exit code and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NotRunnable {
    pub exit_code: i32,
    pub why: String,
}

impl NotRunnable {
    pub(super) fn not_found(name: &str) -> NotRunnable {
        NotRunnable { exit_code: 127, why: format!("{name}: command not found") }
    }

    /// From the operating system's refusal to start what was found.
    pub(super) fn refused(name: &str, error: &std::io::Error) -> NotRunnable {
        match error.kind() {
            std::io::ErrorKind::NotFound => NotRunnable { exit_code: 127, why: format!("{name}: {error}") },
            _ => NotRunnable { exit_code: 126, why: format!("{name}: {error}") },
        }
    }
}

/// The program's absolute path. Whether it can be started is for the operating system to say.
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
