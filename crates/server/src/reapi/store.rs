//! The content of one tenant, and the only place where errors of the content store become gRPC statuses.

use std::sync::Arc;

use blobs::{Blobs, Digest, Error, MAX_BATCH_BYTES, Refusal, Tenant};
use bytes::{Bytes, BytesMut};
use tonic::Status;

use super::concurrency::{ConcurrencyLimits, Permit};
use crate::convert::{Limit, Problem};

#[derive(Clone)]
pub struct Store {
    pub blobs: Arc<dyn Blobs>,
    pub tenant: Tenant,
    pub limits: ConcurrencyLimits,
}

impl Store {
    /// A permit to walk the trees of an action or a result of the tenant.
    pub(super) async fn walk(&self) -> Result<Permit, Status> {
        self.limits.walk(&self.tenant).await
    }

    /// The missing blobs. Looking for a blob counts as using it.
    pub async fn missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, Status> {
        self.blobs.find_missing(&self.tenant, digests).await.map_err(status)
    }

    /// The bytes of a message of at most `max_bytes`.
    pub async fn get(&self, digest: &Digest, max_bytes: u64) -> Result<Option<Bytes>, Status> {
        if digest.size > MAX_BATCH_BYTES && digest.size <= max_bytes {
            self.get_large(digest).await
        } else {
            Ok(self.get_batch(std::slice::from_ref(digest), max_bytes).await?.pop().flatten())
        }
    }

    /// The bytes of messages, in order, each of at most `max_bytes`; none for a missing blob. They must be one batch.
    pub async fn get_batch(&self, batch: &[Digest], max_bytes: u64) -> Result<Vec<Option<Bytes>>, Status> {
        if let Some(large) = batch.iter().find(|digest| digest.size > max_bytes) {
            return Err(Status::invalid_argument(format!(
                "{large} is too large for the message that it should be, which has at most {max_bytes} bytes"
            )));
        }
        self.blobs.get_many(&self.tenant, batch).await.into_iter().map(present).collect()
    }

    async fn get_large(&self, digest: &Digest) -> Result<Option<Bytes>, Status> {
        let reader = self.blobs.read(&self.tenant, *digest, 0, None).await;
        let Some(mut reader) = present(reader)? else { return Ok(None) };
        let mut bytes = BytesMut::with_capacity(digest.size as usize);
        while let Some(piece) = reader.next().await.map_err(status)? {
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(bytes.freeze()))
    }
}

/// Splits digests into batches that can be read at once. A blob that is too large for a batch is a batch by itself.
pub(super) fn batches(digests: &[Digest]) -> impl Iterator<Item = &[Digest]> {
    let mut rest = digests;
    std::iter::from_fn(move || {
        let mut bytes = 0_u64;
        let fit = rest.iter().take_while(|digest| {
            bytes = bytes.saturating_add(digest.size);
            bytes <= MAX_BATCH_BYTES
        });
        let (batch, after) = rest.split_at(fit.count().max(1).min(rest.len()));
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

/// None for a missing blob. A damaged blob counts as missing, so that it is uploaded again.
fn present<T>(got: Result<T, Error>) -> Result<Option<T>, Status> {
    match got {
        Ok(found) => Ok(Some(found)),
        Err(Error::NotFound(_) | Error::Damaged(_)) => Ok(None),
        Err(error) => Err(status(error)),
    }
}

pub(super) fn status(error: Error) -> Status {
    let message = error.to_string();
    match &error {
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
        Error::TenantFull { .. } => Problem::over_limit(Limit::BlobBytes, message).into(),
        Error::Refused { refusal, .. } => match refusal {
            Refusal::Forbidden => Status::permission_denied(message),
            Refusal::NotYet => Status::unavailable(message),
            Refusal::Unreadable => Status::failed_precondition(message),
            Refusal::OverLimit => Status::resource_exhausted(message),
        },
        Error::Unavailable(_) => Status::unavailable(message),
        Error::TakenOver => Status::aborted(message),
        Error::Damaged(_) => Status::data_loss(message),
        Error::Io { .. } => {
            tracing::error!(%error, "the content store failed");
            Status::internal("the content store failed; its log says why")
        }
    }
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction::Sha256;

    use super::*;

    #[test]
    fn a6_what_is_got_at_once_is_bounded_in_bytes() {
        let digest = |size: u64| Digest { size, ..Digest::of(Sha256, &size.to_le_bytes()) };
        let half = MAX_BATCH_BYTES / 2;
        let sizes = [half, half, 1, half, half + 1, MAX_BATCH_BYTES + 1, 5, u64::MAX, u64::MAX, 7];
        let digests = sizes.map(digest);
        let split: Vec<Vec<u64>> =
            batches(&digests).map(|batch| batch.iter().map(|digest| digest.size).collect()).collect();
        let expected: [&[u64]; 8] = [
            &[half, half],
            &[1, half],
            &[half + 1],
            &[MAX_BATCH_BYTES + 1],
            &[5],
            &[u64::MAX],
            &[u64::MAX],
            &[7],
        ];
        assert_eq!(split, expected);
        assert_eq!(batches(&[]).count(), 0);
    }
}
