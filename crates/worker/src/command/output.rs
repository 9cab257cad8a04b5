//! Puts the output of a command into the result of its task: small outputs as they are, large ones by digest.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blobs::{Digest, DigestFunction};
use serde_json::{Map, Value};

use crate::Failure;
use crate::cache::verify;
use crate::inputs::blocking;
use crate::outputs::Destination;

/// Largest output that is part of the result itself. Two such outputs, in the longest JSON encoding, are less than the
/// mebibyte that a result may have.
pub const MAX_INLINE_BYTES: u64 = 64 * 1024;
/// The end of standard error in the message of a failure.
const TAIL_BYTES: u64 = 4 * 1024;

/// Adds one output to the result: as `name`, as `nameBase64` if it is not UTF-8, or as `nameDigest` if it is large.
pub(super) async fn add(
    to: &Destination<'_>,
    name: &str,
    file: &File,
    result: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let file = file.try_clone().map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    if size > MAX_INLINE_BYTES {
        let digest = upload(to, file).await?;
        result.insert(format!("{name}Digest"), digest.to_string().into());
        return Ok(());
    }
    let bytes = blocking(move || read(file, 0)).await?;
    match String::from_utf8(bytes) {
        Ok(text) => result.insert(name.to_owned(), text.into()),
        Err(error) => result.insert(format!("{name}Base64"), STANDARD.encode(error.as_bytes()).into()),
    };
    Ok(())
}

/// The end of an output, and whether that is all of it.
pub(super) async fn tail(file: &File) -> Result<(String, bool), Failure> {
    let file = file.try_clone().map_err(failed)?;
    let begin = file.metadata().map_err(failed)?.len().saturating_sub(TAIL_BYTES);
    let bytes = blocking(move || read(file, begin)).await?;
    Ok((String::from_utf8_lossy(&bytes).trim_end().to_owned(), begin == 0))
}

pub(super) async fn upload(to: &Destination<'_>, file: File) -> Result<Digest, Failure> {
    let hash = move || Ok((verify::digest_of(&file, DigestFunction::Sha256).map_err(failed)?, file));
    let (digest, file) = blocking(hash).await?;
    if !to.cas.find_missing(to.instance, &[digest]).await?.is_empty() {
        to.cas.upload_file(to.instance, &digest, file).await?;
    }
    Ok(digest)
}

fn read(mut file: File, begin: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(begin)).map_err(failed)?;
    // A process that is still dying may have written more since the size was read.
    file.take(MAX_INLINE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn failed(error: std::io::Error) -> Failure {
    Failure::io("the command's output", error)
}
