//! Fetches contents and output streams from the store, and checks each against its digest.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, Write};

use blobs::Digest;
use bytes::Bytes;
use execution::{digest, reapi};
use reapi_client::{Cas, CasError, MAX_SMALL_BYTES};

use super::error::Error;
use super::inputs::FUNCTION;
use super::remote::Remote;
use super::upload::blocking;

/// Small contents, in order.
pub(super) async fn small(remote: &Remote, digests: &[Digest]) -> Result<Vec<Bytes>, Error> {
    let contents = remote.client.read_many(&remote.instance, digests).await?;
    let checked = digests.iter().zip(contents).map(|(digest, content)| match content {
        Some(content) if Digest::of(digest.function, &content) == *digest => Ok(content),
        Some(_) => Err(wrong(digest)),
        None if digest.size == 0 => Ok(Bytes::new()),
        None => Err(gone(digest)),
    });
    checked.collect()
}

/// Writes a content of any size into an empty file, and rewinds the file.
pub(super) async fn into_file(remote: &Remote, digest: Digest, file: &File) -> Result<(), Error> {
    let again = || file.try_clone().map_err(CasError::from);
    let (to, check) = (again()?, again()?);
    if !remote.client.read_to_file(&remote.instance, &digest, to).await? {
        return Err(gone(&digest));
    }
    blocking(move || {
        let found = worker::digest_of(&check, digest.function).map_err(CasError::from)?;
        (&check).rewind().map_err(CasError::from)?;
        if found == digest { Ok(()) } else { Err(wrong(&digest)) }
    })
    .await
}

/// A whole content of at most `max_bytes`.
pub(super) async fn whole(remote: &Remote, digest: Digest, max_bytes: u64) -> Result<Bytes, Error> {
    if digest.size > max_bytes {
        return Err(Error::nonsense(format!("{digest} is too large for what it is used as")));
    }
    if digest.size <= MAX_SMALL_BYTES {
        return Ok(small(remote, &[digest]).await?.pop().unwrap_or_default());
    }
    let file = tempfile::tempfile().map_err(CasError::from)?;
    into_file(remote, digest, &file).await?;
    blocking(move || {
        let mut content = Vec::new();
        (&file).read_to_end(&mut content).map_err(CasError::from)?;
        Ok(content.into())
    })
    .await
}

fn gone(digest: &Digest) -> Error {
    Error::Content(CasError::Refused(format!("{digest} is not there any more; run this again")))
}

fn wrong(digest: &Digest) -> Error {
    Error::Content(CasError::Refused(format!("its content for {digest} is wrong")))
}

/// An output stream of the command: part of the result itself, or in the store.
pub(super) struct Stream {
    raw: Vec<u8>,
    pub digest: Digest,
}

impl Stream {
    pub(super) fn read(raw: &[u8], digest: Option<&reapi::Digest>, what: &str) -> Result<Stream, Error> {
        let digest = match digest.filter(|_| raw.is_empty()) {
            Some(_) => digest::from_proto(digest, FUNCTION, what).map_err(Error::nonsense)?,
            None => Digest::of(FUNCTION, raw),
        };
        Ok(Stream { raw: raw.to_vec(), digest })
    }

    /// A closed pipe is not an error.
    pub(super) async fn copy_to(self, remote: &Remote, to: impl Write + Send + 'static) -> Result<(), Error> {
        let mut to = to;
        if self.digest.size == self.raw.len() as u64 {
            return blocking(move || over(to.write_all(&self.raw).and_then(|()| to.flush()))).await;
        }
        let file = tempfile::tempfile().map_err(CasError::from)?;
        into_file(remote, self.digest, &file).await?;
        blocking(move || over(copy(&file, &mut to))).await
    }
}

fn copy(mut file: &File, to: &mut impl Write) -> io::Result<()> {
    io::copy(&mut file, to)?;
    to.flush()
}

fn over(written: io::Result<()>) -> Result<(), Error> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(Error::Streams),
    }
}
