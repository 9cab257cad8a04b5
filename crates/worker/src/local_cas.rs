//! The content store in the worker's own process, used without a connection.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::sync::Arc;

use blobs::{Begun, Blobs, Digest, Error, Expect, MAX_BATCH_BYTES, Progress, Tenant, UploadRequest};
use bytes::Bytes;
use reapi_client::{Cas, CasError, batches};

const PIECE_BYTES: u64 = 256 * 1024;

pub struct LocalCas {
    blobs: Arc<dyn Blobs>,
    tenant: Tenant,
}

impl LocalCas {
    pub fn new(blobs: Arc<dyn Blobs>, tenant: Tenant) -> LocalCas {
        LocalCas { blobs, tenant }
    }
}

#[tonic::async_trait]
impl Cas for LocalCas {
    async fn find_missing(&self, _: &str, digests: &[Digest]) -> Result<Vec<Digest>, CasError> {
        self.blobs.find_missing(&self.tenant, digests).await.map_err(|error| to_cas_error(&error))
    }

    async fn read_many(&self, _: &str, digests: &[Digest]) -> Result<Vec<Option<Bytes>>, CasError> {
        let mut contents = Vec::with_capacity(digests.len());
        for batch in batches(digests.to_vec(), |digest| digest.size, MAX_BATCH_BYTES, usize::MAX) {
            for got in self.blobs.get_many(&self.tenant, &batch).await {
                contents.push(present(got)?);
            }
        }
        Ok(contents)
    }

    async fn read_to_file(&self, _: &str, digest: &Digest, mut file: File) -> Result<bool, CasError> {
        let reader = self.blobs.read(&self.tenant, *digest, 0, None).await;
        let Some(mut reader) = present(reader)? else { return Ok(false) };
        loop {
            let Some(piece) = present(reader.next().await)? else { return Ok(false) };
            let Some(piece) = piece else { return Ok(true) };
            file = on_file(move || file.write_all(&piece).map(|()| file)).await?;
        }
    }

    async fn upload_many(&self, _: &str, blobs: Vec<(Digest, Bytes)>) -> Result<(), CasError> {
        for batch in batches(blobs, |(digest, _)| digest.size, MAX_BATCH_BYTES, usize::MAX) {
            for stored in self.blobs.put_many(&self.tenant, batch).await {
                stored.map_err(|error| to_cas_error(&error))?;
            }
        }
        Ok(())
    }

    async fn upload_file(&self, _: &str, digest: &Digest, mut file: File) -> Result<(), CasError> {
        let request = UploadRequest::new(Expect::Digest(*digest));
        let begun = self.blobs.write(&self.tenant, request).await.map_err(|error| to_cas_error(&error))?;
        let Begun::Writer(mut writer) = begun else { return Ok(()) };
        file = on_file(move || file.rewind().map(|()| file)).await?;
        while writer.committed() < digest.size {
            let mut piece = vec![0; (digest.size - writer.committed()).min(PIECE_BYTES) as usize];
            let read = on_file(move || file.read_exact(&mut piece).map(|()| (file, piece))).await?;
            file = read.0;
            let written = writer.write(writer.committed(), read.1.into()).await;
            if written.map_err(|error| to_cas_error(&error))? == Progress::Present {
                return Ok(());
            }
        }
        writer.finish().await.map(|_| ()).map_err(|error| to_cas_error(&error))
    }
}

/// Runs work that blocks on the worker's own file on a thread for blocking work.
async fn on_file<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

/// `None` for a missing blob. A damaged blob counts as missing, so that it is uploaded again.
fn present<T>(got: Result<T, Error>) -> Result<Option<T>, CasError> {
    match got {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound(_) | Error::Damaged(_)) => Ok(None),
        Err(error) => Err(to_cas_error(&error)),
    }
}

fn to_cas_error(error: &Error) -> CasError {
    let why = error.to_string();
    match error {
        Error::Full { .. }
        | Error::TenantFull { .. }
        | Error::DiskFull
        | Error::TooManyUploads { .. }
        | Error::TooManyReads { .. }
        | Error::TakenOver
        | Error::Unavailable(_)
        | Error::Io { .. } => CasError::Unavailable(why),
        _ => CasError::Refused(why),
    }
}

#[cfg(test)]
mod tests {
    use blobs::{DigestFunction, Local, Options, Store};

    use super::*;

    fn blob(content: Vec<u8>) -> (Digest, Bytes) {
        (Digest::of(DigestFunction::Sha256, &content), content.into())
    }

    #[tokio::test]
    async fn what_is_stored_comes_back_and_what_is_not_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let cas = LocalCas::new(Arc::new(Local::new(store)), Tenant::new("t").unwrap());
        let file = || tempfile::tempfile_in(dir.path()).unwrap();

        let (small, large) = (blob(vec![1; 100]), blob(vec![2; 3 * PIECE_BYTES as usize + 1]));
        assert_eq!(cas.find_missing("", &[small.0, large.0]).await.unwrap(), [small.0, large.0]);
        assert_eq!(cas.read_many("", &[small.0]).await.unwrap(), [None]);
        assert!(!cas.read_to_file("", &large.0, file()).await.unwrap());

        cas.upload_many("", vec![small.clone()]).await.unwrap();
        let mut source = file();
        source.write_all(&large.1).unwrap();
        cas.upload_file("", &large.0, source).await.unwrap();
        assert!(cas.find_missing("", &[small.0, large.0]).await.unwrap().is_empty());
        assert_eq!(cas.read_many("", &[small.0]).await.unwrap(), [Some(small.1)]);
        let into = file();
        assert!(cas.read_to_file("", &large.0, into.try_clone().unwrap()).await.unwrap());
        let mut content = Vec::new();
        (&into).rewind().unwrap();
        (&into).read_to_end(&mut content).unwrap();
        assert_eq!(large.1, content);
    }

    #[tokio::test]
    async fn content_that_is_not_what_its_digest_says_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path().join("store"), Options::default()).unwrap();
        let cas = LocalCas::new(Arc::new(Local::new(store)), Tenant::new("t").unwrap());
        let (digest, _) = blob(vec![1; 100]);
        let wrong = vec![(digest, Bytes::from(vec![2; 100]))];
        assert!(matches!(cas.upload_many("", wrong).await, Err(CasError::Refused(_))));
        let mut source = tempfile::tempfile_in(dir.path()).unwrap();
        source.write_all(&[3; 100]).unwrap();
        assert!(matches!(cas.upload_file("", &digest, source).await, Err(CasError::Refused(_))));
    }
}
