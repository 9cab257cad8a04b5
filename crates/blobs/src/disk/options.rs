//! The settings of a store, and its fixed limits.

use std::time::Duration;

use super::tenant_quota::TenantQuotas;

/// Settings of a store.
#[derive(Clone, Debug)]
pub struct Options {
    /// Maximum bytes on disk: packs, files and uploads together.
    pub cap_bytes: u64,
    /// Maximum bytes of each tenant.
    pub tenant_quotas: TenantQuotas,
    /// Bytes of the file system that stay free for others, such as the ledger.
    pub keep_free_bytes: u64,
    /// Blobs up to this size are packed; each larger blob has its own file.
    pub small_blob_bytes: u64,
    /// Largest blob.
    pub max_blob_bytes: u64,
    /// Size at which a pack is full.
    pub pack_bytes: u64,
    /// How long an upload without a writer can be resumed.
    pub upload_idle: Duration,
    /// Maximum open uploads of one tenant.
    pub max_uploads_per_tenant: usize,
    /// Whether a background thread of the store runs maintenance. Otherwise the caller calls `Store::maintain`.
    pub background: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            cap_bytes: 50 << 30,
            tenant_quotas: TenantQuotas::default(),
            keep_free_bytes: 1 << 30,
            small_blob_bytes: 16 << 10,
            max_blob_bytes: 16 << 30,
            pack_bytes: 128 << 20,
            upload_idle: Duration::from_secs(600),
            max_uploads_per_tenant: 4096,
            background: true,
        }
    }
}

impl Options {
    /// Clamps the settings to the limits of the format.
    pub(super) fn bounded(mut self) -> Options {
        self.small_blob_bytes = self.small_blob_bytes.min(MAX_SMALL_BLOB_BYTES);
        self.pack_bytes = self.pack_bytes.clamp(MIN_PACK_BYTES, MAX_PACK_BYTES);
        self.max_blob_bytes = self.max_blob_bytes.min(MAX_CHECKED_BYTES);
        self
    }
}

/// A pack holds whole records, and offsets in it have 32 bits.
const MAX_PACK_BYTES: u64 = 1 << 31;
const MIN_PACK_BYTES: u64 = 4 << 10;
const MAX_SMALL_BLOB_BYTES: u64 = 1 << 20;
/// Most bytes of one record's data: the largest result, or the checksums of the largest file.
pub(super) const MAX_RECORD_DATA_BYTES: u64 = 4 << 20;
/// A file is checked in chunks of this size when it is read, so that damage is found before the bytes leave.
/// Reading a part of a file costs at most two chunks more than the part.
pub(super) const CHUNK_BYTES: usize = 256 << 10;
const MAX_CHECKED_BYTES: u64 = MAX_RECORD_DATA_BYTES / 4 * CHUNK_BYTES as u64;
/// Uploads of all tenants together.
pub(super) const MAX_UPLOADS: usize = 16_384;
/// Longest name of an upload.
pub(super) const MAX_UPLOAD_NAME_BYTES: usize = 1024;
/// An upload takes its share of the cap in steps of this size, as its bytes come: what a client announces
/// and does not send displaces nothing.
pub(super) const RESERVE_STEP_BYTES: u64 = 1 << 20;
/// Records are gathered up to this size and written with one call.
pub(super) const GATHER_BYTES: usize = 1 << 20;
/// Records that wait to be listed in a checkpoint.
pub(super) const MAX_PENDING_RECORDS: usize = 1 << 18;
/// Bytes of files after which a checkpoint is made. After a crash, files since the last one are read and
/// checked at start, so this bounds the time that a start takes.
pub(super) const CHECKPOINT_FILE_BYTES: u64 = 512 << 20;
/// How often the free space of the file system is checked, in bytes taken.
pub(super) const FREE_SPACE_CHECK_BYTES: u64 = 64 << 20;
/// What is read on the spot, without waiting, is at most this large: copying it takes a few microseconds.
pub(super) const MAX_CACHED_READ_BYTES: u64 = 64 << 10;
/// Digests that are looked up under one lock; a longer list lets writers in between.
pub(super) const MAX_LOOKUPS: usize = 4096;
