//! Replaces small files as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces or creates a file of a directory, durably. After a crash the file has its old or its new content, and a
/// file with the temporary name may be left.
pub fn replace(directory: &Path, name: &str, temp_name: &str, content: &[u8]) -> io::Result<()> {
    let temp = directory.join(temp_name);
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temp, directory.join(name))?;
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_nothing_else_is_left() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("key.tmp"), "of an interrupted call, and longer than the content").unwrap();
        for content in ["first", "2nd"] {
            replace(dir.path(), "key", "key.tmp", content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(dir.path().join("key")).unwrap(), content);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
