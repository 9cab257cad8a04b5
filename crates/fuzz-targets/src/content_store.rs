//! The packs of the content store, and the lists beside them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use blobs::{ActionKey, Digest, DigestFunction, Options, Origin, RawKey, Serve, Store, Tenant};
use bytes::Bytes;

use crate::seeds;

/// The head of a pack, which names its store.
const PACK_HEAD_BYTES: usize = 64;
/// The head of a list's frame, which ends with a checksum.
const LIST_HEAD_BYTES: usize = 16;
const LIST_CHECKSUM_AT: usize = 12;
const RESULT: &[u8] = b"a result";

/// Opens a store whose pack has these records, and reads what it found.
pub(crate) fn pack(input: &[u8]) {
    // A full disk is no finding.
    let _ = open_with_records(input);
}

/// Opens a store with this list beside its pack, as it is and with a good checksum.
pub(crate) fn list(input: &[u8]) {
    let _ = open_with_list(input);
    if let Some((head, headers)) = input.split_at_checked(LIST_HEAD_BYTES) {
        let (head, _) = head.split_at(LIST_CHECKSUM_AT);
        let summed = files::append_checksum(&[head, headers].concat());
        let checksum = &summed[summed.len() - (LIST_HEAD_BYTES - LIST_CHECKSUM_AT)..];
        let _ = open_with_list(&[head, checksum, headers].concat());
    }
}

pub(crate) fn lists() -> Vec<Vec<u8>> {
    let written = || -> io::Result<Vec<u8>> {
        let directory = seeds::directory()?;
        write_store(directory.path())?;
        fs::read(file_with(directory.path(), "list")?)
    };
    written().into_iter().collect()
}

fn open_with_list(list: &[u8]) -> io::Result<()> {
    let directory = seeds::directory()?;
    write_store(directory.path())?;
    fs::write(file_with(directory.path(), "list")?, list)?;
    read_store(directory.path())
}

pub(crate) fn packs() -> Vec<Vec<u8>> {
    let written = || -> io::Result<Vec<u8>> {
        let directory = seeds::directory()?;
        write_store(directory.path())?;
        Ok(fs::read(pack_path(directory.path())?)?.split_off(PACK_HEAD_BYTES))
    };
    written().into_iter().collect()
}

fn open_with_records(records: &[u8]) -> io::Result<()> {
    let directory = seeds::directory()?;
    write_store(directory.path())?;
    let path = pack_path(directory.path())?;
    let mut bytes = fs::read(&path)?;
    bytes.truncate(PACK_HEAD_BYTES);
    bytes.extend_from_slice(records);
    fs::write(&path, bytes)?;
    // Without its list, the pack itself is read.
    fs::remove_file(file_with(directory.path(), "list")?)?;
    read_store(directory.path())
}

/// Whatever the files say, nothing is served that was not stored.
fn read_store(directory: &Path) -> io::Result<()> {
    let Ok(store) = open(directory) else { return Ok(()) };
    let (tenant, digest, content) = blob()?;
    if store.find_missing(&tenant, &[digest]).is_empty() {
        let found = store.get_many_cached(&tenant, &[digest]).and_then(|mut found| found.pop());
        assert!(found.is_none_or(|found| found == content), "damaged content is served");
    }
    if let Ok(Some(result)) = store.get_result(&tenant, &action(digest), Serve::Any) {
        assert!(result.bytes == RESULT, "a damaged result is served");
    }
    if let Ok(Some(body)) = store.get_raw(&tenant, &raw(digest)) {
        assert!(body == digest, "a damaged entry is served");
    }
    Ok(())
}

fn action(action: Digest) -> ActionKey {
    ActionKey { instance: "main".into(), action }
}

fn raw(digest: Digest) -> RawKey {
    RawKey { prefix: "ac".into(), key: digest.hash }
}

fn write_store(directory: &Path) -> io::Result<()> {
    let store = open(directory)?;
    let (tenant, digest, content) = blob()?;
    store
        .put_many(&tenant, &[(digest, content)])
        .into_iter()
        .collect::<Result<(), _>>()
        .and_then(|()| store.put_result(&tenant, &action(digest), Origin::Committed, RESULT))
        .and_then(|()| store.put_raw(&tenant, &raw(digest), &digest))
        .and_then(|()| store.checkpoint())
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

fn pack_path(directory: &Path) -> io::Result<PathBuf> {
    file_with(directory, "pack")
}

/// The only file of its kind in the store.
fn file_with(directory: &Path, extension: &str) -> io::Result<PathBuf> {
    let mut files = fs::read_dir(directory.join("packs"))?.filter_map(|file| Some(file.ok()?.path()));
    let file = files.find(|path| path.extension().is_some_and(|found| found == extension));
    file.ok_or_else(|| io::ErrorKind::NotFound.into())
}
