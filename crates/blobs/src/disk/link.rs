//! Gives a blob to a process on the same machine as a file.

use std::{
    fs, io,
    io::Write,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use super::store::Store;
use crate::{Digest, Error, Result, Tenant};

const PLAIN_MODE: u32 = 0o444;
const EXECUTABLE_MODE: u32 = 0o555;

impl Store {
    /// Makes `path`, which must not exist, a read-only file with the blob's content. A blob with a file of its own is
    /// linked if it can be; all others are copied, and so are executables, since the mode belongs to the file and not to
    /// its name. Linked content is not checked, and the caller must not write to it.
    pub fn link_to(&self, tenant: &Tenant, digest: &Digest, path: &Path, executable: bool) -> Result<()> {
        let inner = self.inner();
        if !inner.is_present(tenant, digest) {
            return Err(Error::NotFound(*digest));
        }
        if digest.size > inner.options.small_blob_bytes && !executable {
            match fs::hard_link(inner.file_path(tenant.fingerprint(), digest), path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(Error::io("link", path)(error));
                }
                // Another file system, too many links, or packed after all.
                Err(_) => {}
            }
        }
        let mode = if executable { EXECUTABLE_MODE } else { PLAIN_MODE };
        self.copy_to(tenant, digest, path, mode).inspect_err(|error| {
            if !matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists) {
                let _ = fs::remove_file(path);
            }
        })
    }

    fn copy_to(&self, tenant: &Tenant, digest: &Digest, path: &Path, mode: u32) -> Result<()> {
        let mut reader = self.read(tenant, digest, 0, None)?;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(path)
            .map_err(Error::io("create", path))?;
        while let Some(piece) = reader.next_piece()? {
            file.write_all(&piece).map_err(Error::io("write", path))?;
        }
        // The mode above was subject to the umask.
        file.set_permissions(fs::Permissions::from_mode(mode)).map_err(Error::io("protect", path))
    }
}
