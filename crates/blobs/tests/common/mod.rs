//! Test support: content, tenants, and stores of a size that a test can fill.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::Path;

use blobs::{Digest, DigestFunction, Error, Options, Result, Store, Tenant, UploadRequest};
use bytes::Bytes;

pub(crate) const SMALL_BYTES: u64 = 1000;

/// Small packs and no thread of its own, so that a test decides what happens when.
pub(crate) fn options() -> Options {
    Options {
        cap_bytes: 1 << 30,
        keep_free_bytes: 0,
        small_blob_bytes: SMALL_BYTES,
        pack_bytes: 64 << 10,
        background: false,
        ..Options::default()
    }
}

pub(crate) fn open(path: &Path) -> Store {
    Store::open(path, options()).unwrap()
}

pub(crate) fn tenant() -> Tenant {
    Tenant::new("default").unwrap()
}

/// Content that no other seed has.
pub(crate) fn content(seed: u64, bytes: usize) -> Bytes {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut content = vec![0; bytes];
    random.fill(&mut content);
    content.into()
}

pub(crate) fn sha256(content: &[u8]) -> Digest {
    Digest::of(DigestFunction::Sha256, content)
}

pub(crate) fn put(store: &Store, content: &Bytes) -> Result<Digest> {
    put_as(store, &tenant(), DigestFunction::Sha256, content)
}

pub(crate) fn put_as(
    store: &Store,
    tenant: &Tenant,
    function: DigestFunction,
    content: &Bytes,
) -> Result<Digest> {
    let digest = Digest::of(function, content);
    let mut answers = store.put_many(tenant, &[(digest, content.clone())]);
    answers.remove(0).map(|()| digest)
}

pub(crate) fn get(store: &Store, digest: &Digest) -> Result<Bytes> {
    store.get_many(&tenant(), &[*digest]).remove(0)
}

/// Everything from `offset` on, as a stream gives it.
pub(crate) fn stream(store: &Store, digest: &Digest, offset: u64, limit: Option<u64>) -> Result<Vec<u8>> {
    let mut reader = store.read(&tenant(), digest, offset, limit)?;
    let mut content = Vec::new();
    while let Some(piece) = reader.next_piece()? {
        assert!(!piece.is_empty());
        content.extend_from_slice(&piece);
    }
    Ok(content)
}

/// Uploads content in pieces of a few kilobytes.
pub(crate) fn upload(store: &Store, request: &UploadRequest, content: &[u8]) -> Result<Digest> {
    let Some(mut upload) = store.write(&tenant(), request)? else { panic!("it is here already") };
    for piece in content.chunks(3000) {
        let offset = upload.committed();
        upload.write(offset, piece)?;
    }
    upload.finish()
}

pub(crate) fn is_missing(store: &Store, digest: &Digest) -> bool {
    let missing = store.find_missing(&tenant(), &[*digest]) == [*digest];
    assert_eq!(matches!(get(store, digest), Err(Error::NotFound(_))), missing);
    missing
}

/// Every file below a directory, relative to it, in order.
pub(crate) fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![root.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// The only file below a directory whose path ends so.
pub(crate) fn only_file(root: &Path, suffix: &str) -> std::path::PathBuf {
    let mut found: Vec<String> = files(root).into_iter().filter(|path| path.ends_with(suffix)).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    root.join(found.remove(0))
}

/// A copy of a directory as it is at this moment: what a killed process leaves.
pub(crate) fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(&file);
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        std::fs::copy(from.join(&file), target).unwrap();
    }
}
