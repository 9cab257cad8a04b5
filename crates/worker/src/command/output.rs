//! Puts the output of a command into the result of its task: small outputs as they are, large ones by digest.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use blobs::{Digest, DigestFunction};
use serde_json::{Map, Value};

use crate::cache::verify;
use crate::inputs::blocking;
use crate::outputs::Destination;
use crate::{Cas, Failure};

/// Largest output that is part of the result itself. Twice it, written in the longest way that JSON has, is still less
/// than the mebibyte that a result may have.
pub const MAX_INLINE_BYTES: u64 = 64 * 1024;
/// How much of the end of an output a failure tells.
const TAIL_BYTES: u64 = 4 * 1024;

/// Adds one output to the result: as `name`, as `nameBase64` if it is no text, or as `nameDigest` if it is large.
pub(super) async fn add(
    to: &Destination<'_>,
    name: &str,
    file: &File,
    result: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let file = clone(file)?;
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

/// The last of an output, for people, and whether that is all of it.
pub(super) async fn tail(file: &File) -> Result<(String, bool), Failure> {
    let file = clone(file)?;
    let begin = file.metadata().map_err(failed)?.len().saturating_sub(TAIL_BYTES);
    let bytes = blocking(move || read(file, begin)).await?;
    Ok((String::from_utf8_lossy(&bytes).trim_end().to_owned(), begin == 0))
}

/// Brings a whole output to the store.
pub(super) async fn upload(to: &Destination<'_>, file: File) -> Result<Digest, Failure> {
    let named = blocking(move || {
        (&file).rewind().map_err(failed)?;
        let digest = verify::digest_of(&file, DigestFunction::Sha256).map_err(failed)?;
        (&file).rewind().map_err(failed)?;
        Ok((digest, file))
    });
    let (digest, file) = named.await?;
    let cas: &dyn Cas = to.cas;
    if !cas.find_missing(to.instance, &[digest]).await?.is_empty() {
        cas.upload_file(to.instance, &digest, file).await?;
    }
    Ok(digest)
}

fn read(mut file: File, begin: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(begin)).map_err(failed)?;
    // The command is over, but what it wrote is not trusted to be of the size that it had a moment ago.
    file.take(MAX_INLINE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn clone(file: &File) -> Result<File, Failure> {
    file.try_clone().map_err(failed)
}

fn failed(error: std::io::Error) -> Failure {
    Failure::io("the command's output", error)
}
