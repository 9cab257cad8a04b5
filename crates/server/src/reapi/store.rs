//! The content of one tenant, as the calls of this protocol ask for it, and the one place where the store's errors become
//! statuses.

use std::sync::Arc;

use blobs::{Blobs, Digest, Error, MAX_BATCH_BYTES, Tenant};
use bytes::{Bytes, BytesMut};
use tonic::Status;

#[derive(Clone)]
pub struct Store {
    pub blobs: Arc<dyn Blobs>,
    pub tenant: Tenant,
}

impl Store {
    /// Those that are not here; the others have just been used.
    pub async fn missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, Status> {
        self.blobs.find_missing(&self.tenant, digests).await.map_err(|error| status(&error))
    }

    /// A message's bytes, of at most `max_bytes`.
    pub async fn get(&self, digest: &Digest, max_bytes: u64) -> Result<Option<Bytes>, Status> {
        Ok(self.get_all(std::slice::from_ref(digest), max_bytes).await?.pop().flatten())
    }

    /// Messages' bytes in order, each of at most `max_bytes`; none for what is missing.
    pub async fn get_all(&self, digests: &[Digest], max_bytes: u64) -> Result<Vec<Option<Bytes>>, Status> {
        let mut found = Vec::with_capacity(digests.len());
        let mut rest = digests;
        while let Some(first) = rest.first() {
            if first.size > max_bytes {
                return Err(Status::invalid_argument(format!(
                    "{first} is too large for the message that it should be, which has at most {max_bytes} bytes"
                )));
            }
            if first.size > MAX_BATCH_BYTES {
                found.push(self.get_large(first).await?);
                rest = &rest[1..];
                continue;
            }
            let mut batch_bytes = 0;
            let fit = rest.iter().take_while(|digest| {
                batch_bytes += digest.size;
                batch_bytes <= MAX_BATCH_BYTES
            });
            let (batch, after) = rest.split_at(fit.count());
            for got in self.blobs.get_many(&self.tenant, batch).await {
                found.push(present(got)?);
            }
            rest = after;
        }
        Ok(found)
    }

    async fn get_large(&self, digest: &Digest) -> Result<Option<Bytes>, Status> {
        let reader = self.blobs.read(&self.tenant, *digest, 0, None).await;
        let Some(mut reader) = present(reader)? else { return Ok(None) };
        let mut bytes = BytesMut::with_capacity(digest.size as usize);
        while let Some(piece) = reader.next().await.map_err(|error| status(&error))? {
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(bytes.freeze()))
    }
}

/// What was found; what was damaged on disk counts as missing, so that it is uploaded again.
fn present<T>(got: Result<T, Error>) -> Result<Option<T>, Status> {
    match got {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound(_) | Error::Damaged(_)) => Ok(None),
        Err(error) => Err(status(&error)),
    }
}

pub fn status(error: &Error) -> Status {
    let message = error.to_string();
    match error {
        Error::NotFound(_) => Status::not_found(message),
        Error::Mismatch { .. }
        | Error::TooLong { .. }
        | Error::WrongOffset { .. }
        | Error::TooLarge { .. }
        | Error::BadCompression(_) => Status::invalid_argument(message),
        Error::OutOfRange { .. } => Status::out_of_range(message),
        Error::Full { .. } | Error::DiskFull | Error::TooManyUploads { .. } | Error::TooManyReads { .. } => {
            Status::resource_exhausted(message)
        }
        Error::TakenOver => Status::aborted(message),
        Error::Damaged(_) => Status::data_loss(message),
        Error::Io { .. } => {
            tracing::error!(%error, "the content store failed");
            Status::internal("the content store failed; its log says why")
        }
    }
}
