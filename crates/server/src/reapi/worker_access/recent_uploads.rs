//! The blobs that worker identities uploaded and that are in the view of the tenant by now. Whoever uploaded a blob may read it.

use std::collections::{HashSet, VecDeque};

use blobs::Digest;

use super::lease_table::Holder;

/// Most uploads that are remembered, over all identities; they take about 100 MiB. A worker uploads a forgotten blob again.
const MAX_RECENT_UPLOADS: usize = 500_000;

#[derive(Default)]
pub(super) struct RecentUploads {
    known: HashSet<(Holder, Digest)>,
    /// In the order of their first upload.
    order: VecDeque<(Holder, Digest)>,
}

impl RecentUploads {
    pub(super) fn add(&mut self, holder: &Holder, digests: &[Digest]) {
        for digest in digests {
            let upload = (holder.clone(), *digest);
            if self.known.insert(upload.clone()) {
                self.order.push_back(upload);
            }
        }
        while self.order.len() > MAX_RECENT_UPLOADS {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    /// Those of the digests that the holder did not upload, as far as is remembered.
    pub(super) fn not_uploaded(&self, holder: &Holder, digests: &[Digest]) -> Vec<Digest> {
        let is_known = |digest: &Digest| self.known.contains(&(holder.clone(), *digest));
        digests.iter().filter(|digest| !is_known(digest)).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use blobs::DigestFunction::Sha256;

    use super::*;

    #[test]
    fn uploads_belong_to_their_uploader_and_the_oldest_are_forgotten() {
        let holder = |identity: &str| Holder { tenant: "t".into(), identity: identity.into() };
        let digest = |n: usize| Digest::of(Sha256, &n.to_le_bytes());
        let (ada, eve, mut uploads) = (holder("ada"), holder("eve"), RecentUploads::default());
        uploads.add(&ada, &[digest(0), digest(0)]);
        assert!(uploads.not_uploaded(&ada, &[digest(0)]).is_empty());
        assert_eq!(uploads.not_uploaded(&eve, &[digest(0)]), [digest(0)]);
        let more: Vec<Digest> = (1..=MAX_RECENT_UPLOADS).map(digest).collect();
        uploads.add(&eve, &more);
        assert_eq!(uploads.not_uploaded(&ada, &[digest(0)]), [digest(0)]);
        assert_eq!(uploads.known.len(), MAX_RECENT_UPLOADS);
    }
}
