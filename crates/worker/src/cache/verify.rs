//! Compares files with digests.

use std::fs::File;
use std::io::{self, Read, Seek};

use blobs::{Digest, DigestFunction, Hasher};

const PIECE_BYTES: usize = 128 * 1024;

/// Whether the content of a file has this digest.
pub(crate) fn is_right(file: &File, digest: &Digest) -> io::Result<bool> {
    Ok(file.metadata()?.len() == digest.size && digest_of(file, digest.function)? == *digest)
}

/// The digest of a file, read from its beginning.
pub fn digest_of(mut file: &File, function: DigestFunction) -> io::Result<Digest> {
    file.rewind()?;
    let mut hasher = Hasher::new(function);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hasher.finish()),
            read => hasher.update(&piece[..read]),
        }
    }
}
