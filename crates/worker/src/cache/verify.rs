//! Whether a file is what its digest says.

use std::fs::File;
use std::io::{self, Read};

use blobs::{Digest, Hasher};

const PIECE_BYTES: usize = 128 * 1024;

/// Reads the file from its beginning.
pub(crate) fn is_right(file: &File, digest: &Digest) -> io::Result<bool> {
    if file.metadata()?.len() != digest.size {
        return Ok(false);
    }
    Ok(digest_of(file, digest.function)? == *digest)
}

/// The digest of what can be read from here on.
pub fn digest_of(mut file: impl Read, function: blobs::DigestFunction) -> io::Result<Digest> {
    let mut hasher = Hasher::new(function);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finish()),
            read => hasher.update(&piece[..read]),
        }
    }
}
