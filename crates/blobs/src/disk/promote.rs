//! Moves blobs from a staging area into the view of a tenant. Files are linked and not copied, so that large blobs cost no
//! more than small ones.
//!
//! A blob is in one of the two views at every moment, also after a crash: it leaves the staging area when the tenant has it.

use std::{fs, io, path::Path};

use bytes::Bytes;

use super::{
    inner::Inner, options::GATHER_BYTES, put::item, read::Stored, record::HEADER_BYTES, store::Store,
};
use crate::{Digest, Error, Result, Tenant};

impl Store {
    /// Moves blobs; see [`crate::Blobs::promote`].
    pub fn promote(&self, staging_area: &Tenant, tenant: &Tenant, digests: &[Digest]) -> Result<()> {
        let inner = self.inner();
        let (mut small, mut bytes) = (Vec::new(), 0);
        for digest in digests {
            if inner.is_present(tenant, digest) {
                inner.leave_staging(staging_area, digest);
                continue;
            }
            match inner.stored(staging_area, digest)? {
                Stored::File { checksums } => {
                    inner.promote_file(staging_area, tenant, digest, &checksums)?;
                }
                Stored::Packed(content) => {
                    bytes += content.len();
                    small.push((*digest, content));
                    if bytes >= GATHER_BYTES {
                        inner.promote_packed(staging_area, tenant, &small)?;
                        (small, bytes) = (Vec::new(), 0);
                    }
                }
            }
        }
        inner.promote_packed(staging_area, tenant, &small)
    }
}

impl Inner {
    fn promote_packed(
        &self,
        staging_area: &Tenant,
        tenant: &Tenant,
        blobs: &[(Digest, Bytes)],
    ) -> Result<()> {
        if blobs.is_empty() {
            return Ok(());
        }
        let items: Vec<_> = blobs.iter().map(|(digest, content)| item(tenant, digest, content)).collect();
        self.put_items(&items)?;
        blobs.iter().for_each(|(digest, _)| self.leave_staging(staging_area, digest));
        Ok(())
    }

    /// The bytes of the file are on the disk once, so only its record needs space; the quota of the tenant applies to all of
    /// them.
    fn promote_file(
        &self,
        staging_area: &Tenant,
        tenant: &Tenant,
        digest: &Digest,
        checksums: &[u8],
    ) -> Result<()> {
        self.check_announced(tenant, digest.size)?;
        self.admit(tenant.fingerprint(), digest.size)?;
        let _reservation = self.reserve_records((HEADER_BYTES + checksums.len()) as u64)?;
        let (from, temp) = (self.file_path(staging_area.fingerprint(), digest), self.temp_path());
        {
            let mut writer = self.writer();
            if !self.is_present(tenant, digest) {
                // The file may have been evicted since its checksums were read.
                fs::hard_link(&from, &temp).map_err(|error| not_found(error, &from, digest))?;
                writer.commit_file(self, tenant.fingerprint(), digest, &temp, checksums).inspect_err(
                    |_| {
                        let _ = fs::remove_file(&temp);
                    },
                )?;
            }
        }
        self.leave_staging(staging_area, digest);
        Ok(())
    }

    /// Takes a blob out of the staging area. It is not recorded: should it come back after a restart, it is still right.
    fn leave_staging(&self, staging_area: &Tenant, digest: &Digest) {
        let Some(key) = self.key(staging_area, digest) else { return };
        let gone = {
            let mut writer = self.writer();
            let taken = self.index_mut().remove(&key);
            taken.and_then(|taken| writer.forget(self, &taken))
        };
        if let Some(path) = gone {
            let _ = fs::remove_file(path);
        }
    }
}

fn not_found(error: io::Error, path: &Path, digest: &Digest) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => Error::NotFound(*digest),
        _ => Error::io("link", path)(error),
    }
}
