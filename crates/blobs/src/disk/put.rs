//! Stores whole blobs, many at a time.

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use foldhash::fast::RandomState;

use super::{
    inner::Inner, options::MAX_PENDING_RECORDS, record::Placement, record::Space, store::Store,
    upload::Upload, writer::Item,
};
use crate::{Digest, Error, Expect, MAX_BATCH_BYTES, Result, Tenant, UploadRequest};

impl Store {
    /// Stores whole blobs, an answer for each; see [`crate::Blobs::put_many`].
    pub fn put_many(&self, tenant: &Tenant, blobs: &[(Digest, Bytes)]) -> Vec<Result<()>> {
        let inner = self.inner();
        let total: u64 = blobs.iter().map(|(_, content)| content.len() as u64).sum();
        if total > MAX_BATCH_BYTES {
            let error = Error::TooLarge { what: "a batch", size: total, limit: MAX_BATCH_BYTES };
            return vec![Err(error); blobs.len()];
        }
        let mut answers: Vec<Result<()>> =
            blobs.iter().map(|(digest, content)| verify(digest, content)).collect();
        let is_small = |digest: &Digest| digest.size <= inner.options.small_blob_bytes;
        let small = blobs.iter().zip(&answers).filter(|((digest, _), answer)| {
            answer.is_ok() && is_small(digest) && !inner.is_present(tenant, digest)
        });
        let items: Vec<Item<'_>> =
            small.map(|((digest, content), _)| item(tenant, digest, content)).collect();
        let stored = if items.is_empty() { Ok(()) } else { inner.put_items(&items) };
        for ((digest, content), answer) in blobs.iter().zip(&mut answers) {
            if answer.is_err() {
                continue;
            }
            if !is_small(digest) {
                *answer = inner.put_large(tenant, digest, content);
            } else if let Err(error) = &stored
                && !inner.is_present(tenant, digest)
            {
                *answer = Err(error.clone());
            }
        }
        answers
    }
}

impl Inner {
    /// Appends records of things of one tenant that are not there yet, each once.
    pub fn put_items(&self, items: &[Item<'_>]) -> Result<()> {
        let bytes = items.iter().map(Item::bytes).sum();
        if let Some(first) = items.first() {
            let admitted = self.admit(first.tenant, bytes);
            // What clients choose to store is refused; a result that was committed must be found.
            if first.space != Space::CommittedResult {
                admitted?;
            }
        }
        let _reservation = self.reserve_records(bytes)?;
        let mut writer = self.writer();
        let fresh: Vec<Item<'_>> = {
            let index = self.index();
            let mut seen: HashSet<_, RandomState> = HashSet::default();
            let is_fresh = |item: &&Item<'_>| {
                let is_content = item.space.function().is_some();
                !(is_content && index.has(item.tenant, item.space, &item.hash))
                    && seen.insert((item.space, item.hash))
            };
            items.iter().filter(is_fresh).copied().collect()
        };
        writer.append(self, &fresh)?;
        let is_behind = writer.pending.len() >= 2 * MAX_PENDING_RECORDS;
        drop(writer);
        if is_behind {
            // Without a thread that does it, or when that one is held up, the list must not grow for ever.
            let _housekeeping = self.keep_house();
            self.checkpoint()?;
        }
        Ok(())
    }

    fn put_large(self: &Arc<Inner>, tenant: &Tenant, digest: &Digest, content: &[u8]) -> Result<()> {
        let request = UploadRequest::new(Expect::Digest(*digest));
        if let Some(mut upload) = Upload::begin(self, tenant, &request)? {
            upload.write(0, content)?;
            upload.finish()?;
        }
        Ok(())
    }
}

/// A packed blob.
pub(super) fn item<'a>(tenant: &Tenant, digest: &Digest, content: &'a [u8]) -> Item<'a> {
    Item {
        tenant: tenant.fingerprint(),
        space: digest.function.into(),
        hash: digest.hash.0,
        placement: Placement::Pack,
        size: digest.size,
        data: content,
    }
}

fn verify(expected: &Digest, content: &[u8]) -> Result<()> {
    let actual = Digest::of(expected.function, content);
    if actual == *expected { Ok(()) } else { Err(Error::Mismatch { expected: *expected, actual }) }
}
