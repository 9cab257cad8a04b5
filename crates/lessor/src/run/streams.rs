//! Copies the standard output and error of the command, byte by byte.

use std::fs::File;
use std::io::{self, ErrorKind, Write};

use blobs::Digest;
use execution::{digest, reapi};
use reapi_client::CasError;

use super::error::Error;
use super::fetch;
use super::inputs::FUNCTION;
use super::remote::Remote;
use super::upload::blocking;

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
        fetch::into_file(remote, self.digest, &file).await?;
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
