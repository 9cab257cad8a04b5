//! The packs of the content store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use blobs::{Digest, DigestFunction, Options, Store, Tenant};
use bytes::Bytes;

/// The head of a pack, which names its store.
const PACK_HEAD_BYTES: usize = 64;

/// Opens a store whose pack has these records, and reads what it found.
pub(crate) fn pack(input: &[u8]) {
    // A full disk is no finding.
    let _ = open_with_records(input);
}

pub(crate) fn packs() -> Vec<Vec<u8>> {
    let written = || -> io::Result<Vec<u8>> {
        let directory = tempfile::tempdir()?;
        write_store(directory.path())?;
        Ok(fs::read(pack_path(directory.path())?)?.split_off(PACK_HEAD_BYTES))
    };
    written().into_iter().collect()
}

fn open_with_records(records: &[u8]) -> io::Result<()> {
    let directory = tempfile::tempdir()?;
    write_store(directory.path())?;
    let path = pack_path(directory.path())?;
    let mut bytes = fs::read(&path)?;
    bytes.truncate(PACK_HEAD_BYTES);
    bytes.extend_from_slice(records);
    fs::write(&path, bytes)?;
    if let Ok(store) = open(directory.path()) {
        let (tenant, digest, content) = blob()?;
        if store.find_missing(&tenant, &[digest]).is_empty() {
            let found = store.get_many_cached(&tenant, &[digest]).and_then(|mut found| found.pop());
            assert!(found.is_none_or(|found| found == content), "damaged content is never served");
        }
    }
    Ok(())
}

fn write_store(directory: &Path) -> io::Result<()> {
    let store = open(directory)?;
    let (tenant, digest, content) = blob()?;
    store
        .put_many(&tenant, &[(digest, content)])
        .into_iter()
        .collect::<Result<(), _>>()
        .map_err(io::Error::other)
}

fn open(directory: &Path) -> io::Result<Store> {
    let options = Options { background: false, keep_free_bytes: 0, ..Options::default() };
    Store::open(directory, options).map_err(io::Error::other)
}

fn blob() -> io::Result<(Tenant, Digest, Bytes)> {
    let content = Bytes::from_static(b"hello");
    let tenant = Tenant::new("default").map_err(io::Error::other)?;
    Ok((tenant, Digest::of(DigestFunction::Sha256, &content), content))
}

/// The only pack of the store.
fn pack_path(directory: &Path) -> io::Result<PathBuf> {
    let mut files = fs::read_dir(directory.join("packs"))?.filter_map(|file| Some(file.ok()?.path()));
    let pack = files.find(|path| path.extension().is_some_and(|extension| extension == "pack"));
    pack.ok_or_else(|| io::ErrorKind::NotFound.into())
}
