//! Short ways to write seeds, and to give a target what its decoder gets.

use std::io;
use std::path::Path;

use tempfile::TempDir;

const MEMORY: &str = "/dev/shm";

/// A directory for one input, in memory if there is a file system for that.
pub(crate) fn directory() -> io::Result<TempDir> {
    if Path::new(MEMORY).is_dir() { tempfile::tempdir_in(MEMORY) } else { tempfile::tempdir() }
}

/// Bytes that are no UTF-8 never reach the decoders of text.
pub(crate) fn with_text(input: &[u8], decode: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(input) {
        decode(text);
    }
}

pub(crate) fn texts<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Vec<Vec<u8>> {
    texts.into_iter().map(|text| text.as_ref().as_bytes().to_vec()).collect()
}
