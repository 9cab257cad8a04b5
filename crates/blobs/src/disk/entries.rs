//! The action cache's entries and the raw ones, as records in the packs.
//!
//! An entry is found under a hash of its key, in the space of its origin. A later record of the same name
//! replaces an earlier one, also when the packs are read at a start.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    inner::Inner,
    options::MAX_CACHED_READ_BYTES,
    record::{HEADER_BYTES, Placement, Space},
    store::Store,
    writer::Item,
};
use crate::{
    ActionKey, CachedResult, Digest, DigestFunction, Error, Hash, MAX_INSTANCE_BYTES, MAX_RESULT_BYTES,
    Origin, RawKey, Result, Serve, Tenant,
};

const RESULT_CONTEXT: &str = "lessor 2026 blobs action result";
const RAW_CONTEXT: &str = "lessor 2026 blobs raw entry";
const RAW_BYTES: usize = 41;

impl Store {
    /// See [`crate::ActionCache::get_result`].
    pub fn get_result(&self, tenant: &Tenant, key: &ActionKey, serve: Serve) -> Result<Option<CachedResult>> {
        let hash = result_hash(key)?;
        for &origin in origins(serve) {
            if let Some(bytes) = self.inner().get_entry(tenant, origin.into(), &hash)? {
                return Ok(Some(CachedResult { origin, bytes }));
            }
        }
        Ok(None)
    }

    /// A result, if it is known without waiting for the disk. `None` says nothing.
    pub fn get_result_cached(
        &self,
        tenant: &Tenant,
        key: &ActionKey,
        serve: Serve,
    ) -> Option<Option<CachedResult>> {
        let (inner, hash) = (self.inner(), result_hash(key).ok()?);
        for &origin in origins(serve) {
            let Some(key) = inner.key_in(tenant, origin.into(), &hash) else { continue };
            let location = inner.index().locate(&key);
            let Some(location) = location else { continue };
            if u64::from(location.data_bytes) > MAX_CACHED_READ_BYTES {
                return None;
            }
            let bytes = location.pack.read_cached(location.offset, location.data_bytes)?;
            return Some(Some(CachedResult { origin, bytes }));
        }
        Some(None)
    }

    /// See [`crate::ActionCache::put_result`].
    pub fn put_result(&self, tenant: &Tenant, key: &ActionKey, origin: Origin, result: &[u8]) -> Result<()> {
        if result.len() as u64 > MAX_RESULT_BYTES {
            let size = result.len() as u64;
            return Err(Error::TooLarge { what: "a result", size, limit: MAX_RESULT_BYTES });
        }
        self.inner().put_entry(tenant, origin.into(), result_hash(key)?, result)
    }

    /// See [`crate::ActionCache::remove_result`].
    pub fn remove_result(&self, tenant: &Tenant, key: &ActionKey) -> Result<()> {
        let (inner, hash) = (self.inner(), result_hash(key)?);
        for space in [Space::CommittedResult, Space::UploadedResult] {
            let key = inner.key_in(tenant, space, &hash).filter(|key| inner.index().position(key).is_some());
            let Some(key) = key else { continue };
            // A full store removes entries all the same.
            let _reservation = inner.reserve_records(HEADER_BYTES as u64).ok();
            let mut writer = inner.writer();
            let position = inner.index().position(&key);
            if let Some(position) = position {
                writer.remove(inner, &key, position)?;
            }
        }
        Ok(())
    }

    /// See [`crate::ActionCache::get_raw`].
    pub fn get_raw(&self, tenant: &Tenant, key: &RawKey) -> Result<Option<Digest>> {
        let entry = self.inner().get_entry(tenant, Space::RawEntry, &raw_hash(key)?)?;
        Ok(entry.and_then(|entry| decode_raw(&entry)).filter(|body| self.inner().is_present(tenant, body)))
    }

    /// See [`crate::ActionCache::put_raw`].
    pub fn put_raw(&self, tenant: &Tenant, key: &RawKey, body: &Digest) -> Result<()> {
        if !self.inner().is_present(tenant, body) {
            return Err(Error::NotFound(*body));
        }
        self.inner().put_entry(tenant, Space::RawEntry, raw_hash(key)?, &encode_raw(body))
    }
}

impl Inner {
    fn get_entry(&self, tenant: &Tenant, space: Space, hash: &Hash) -> Result<Option<Bytes>> {
        let Some(key) = self.key_in(tenant, space, hash) else { return Ok(None) };
        let location = self.index().locate(&key);
        let Some(location) = location else { return Ok(None) };
        if let Some((_, data)) = location.pack.read(location.offset, location.data_bytes)? {
            return Ok(Some(data));
        }
        tracing::error!(?space, %hash, "a cached entry was damaged on disk and is removed");
        self.take_out(&key, (location.pack.number, location.offset));
        Ok(None)
    }

    fn put_entry(&self, tenant: &Tenant, space: Space, hash: Hash, data: &[u8]) -> Result<()> {
        let (tenant, hash, size) = (tenant.fingerprint(), hash.0, data.len() as u64);
        self.put_items(&[Item { tenant, space, hash, placement: Placement::Pack, size, data }])
    }
}

/// The origins whose results are served, the best first.
fn origins(serve: Serve) -> &'static [Origin] {
    match serve {
        Serve::Committed => &[Origin::Committed],
        Serve::Any => &[Origin::Committed, Origin::Uploaded],
    }
}

fn result_hash(key: &ActionKey) -> Result<Hash> {
    let action = encode_raw(&key.action);
    entry_hash(RESULT_CONTEXT, &key.instance, &action)
}

fn raw_hash(key: &RawKey) -> Result<Hash> {
    entry_hash(RAW_CONTEXT, &key.prefix, &key.key.0)
}

fn entry_hash(context: &str, instance: &Arc<str>, rest: &[u8]) -> Result<Hash> {
    if instance.len() > MAX_INSTANCE_BYTES {
        let (size, limit) = (instance.len() as u64, MAX_INSTANCE_BYTES as u64);
        return Err(Error::TooLarge { what: "an instance name", size, limit });
    }
    // What follows the instance has a fixed length, so no two keys run together to the same text.
    let mut hasher = blake3::Hasher::new_derive_key(context);
    hasher.update(instance.as_bytes()).update(rest);
    Ok(Hash(hasher.finalize().into()))
}

fn encode_raw(digest: &Digest) -> [u8; RAW_BYTES] {
    let mut bytes = [0; RAW_BYTES];
    bytes[0] = Space::from(digest.function) as u8;
    bytes[1..33].copy_from_slice(&digest.hash.0);
    bytes[33..].copy_from_slice(&digest.size.to_le_bytes());
    bytes
}

fn decode_raw(bytes: &[u8]) -> Option<Digest> {
    let bytes: &[u8; RAW_BYTES] = bytes.try_into().ok()?;
    let function =
        DigestFunction::ALL.into_iter().find(|function| Space::from(*function) as u8 == bytes[0])?;
    let (mut hash, mut size) = ([0; 32], [0; 8]);
    hash.copy_from_slice(&bytes[1..33]);
    size.copy_from_slice(&bytes[33..]);
    Some(Digest { function, hash: Hash(hash), size: u64::from_le_bytes(size) })
}
