//! Directories for the worker itself, beside those of its attempts. Each is removed when it is dropped; those of a killed
//! process are found by their name at the worker's next start, with any backend.

use std::fs;
use std::io;
use std::path::Path;

use tempfile::TempDir;

/// `key` is unique to this worker.
pub(super) fn make(work_dir: &Path, key: &str) -> io::Result<TempDir> {
    tempfile::Builder::new().prefix(&prefix(key)).tempdir_in(work_dir)
}

/// Removes the directories of dead processes of the same worker, except the one in use.
pub(super) fn clear(work_dir: &Path, key: &str, used: Option<&Path>) {
    let Ok(entries) = fs::read_dir(work_dir) else { return };
    for entry in entries.flatten().filter(|entry| Some(&*entry.path()) != used) {
        if entry.file_name().to_string_lossy().starts_with(&prefix(key)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn prefix(key: &str) -> String {
    format!("scratch-{key}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w12_what_a_dead_worker_left_is_removed_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let left = make(dir.path(), "key").unwrap().keep();
        fs::write(left.join("file"), "").unwrap();
        let (used, others) = (make(dir.path(), "key").unwrap(), make(dir.path(), "other").unwrap());
        clear(dir.path(), "key", Some(used.path()));
        assert!(!left.exists() && used.path().exists() && others.path().exists());
        drop(used);
        assert_eq!(dir.path().read_dir().unwrap().count(), 1, "that of another worker");
    }
}
