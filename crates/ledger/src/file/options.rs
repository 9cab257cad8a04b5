//! The settings of a ledger on disk.

use crate::{ClusterId, Position};

/// A segment is long enough that rotation is rare, and short enough that recovery copies it in a moment.
pub const DEFAULT_SEGMENT_BYTES: u64 = 64 << 20;
/// Seven days.
pub const DEFAULT_HISTORY_MAX_AGE_MS: u64 = 7 * 24 * 60 * 60 * 1000;
pub const DEFAULT_HISTORY_MAX_BYTES: u64 = 10 << 30;
/// Enough for two usual batches, one in flight and one that forms. A larger batch is held until there is space.
const DEFAULT_MIN_FREE_BYTES: u64 = 24 << 20;

#[derive(Clone, Debug)]
pub struct Options {
    /// The length of new segments. Existing ones keep theirs.
    pub segment_bytes: u64,
    /// How much of a new segment is filled with zeros in advance, the whole segment at most. What is not filled in advance
    /// is not reserved on the disk either, and syncs of it are slower: less is for tests and for servers whose data does
    /// not matter.
    pub preallocate_bytes: u64,
    /// The id for a new cluster. Without it a missing or empty directory is refused (D26); a directory that
    /// is initialised already keeps its own id.
    pub create: Option<ClusterId>,
    /// Where a new ledger begins. Above 1 the history before is missing, so a snapshot that stands for it must be stored
    /// before the ledger is closed.
    pub first: Position,
    /// When given, the directory must belong to this cluster.
    pub cluster: Option<ClusterId>,
    /// Drop a last frame that was wholly written but does not verify. It may have been acknowledged.
    pub drop_unverified_tail: bool,
    /// Segments that the snapshots cover are kept as history for this long.
    pub history_max_age_ms: u64,
    /// Segments that the snapshots cover are kept as history up to this size in total.
    pub history_max_bytes: u64,
    /// When no further segment can be prepared and the current segment has less space than this, the ledger reports
    /// [`crate::DiskSpace::Nothing`].
    pub min_free_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: DEFAULT_SEGMENT_BYTES,
            preallocate_bytes: u64::MAX,
            create: None,
            first: Position(1),
            cluster: None,
            drop_unverified_tail: false,
            history_max_age_ms: DEFAULT_HISTORY_MAX_AGE_MS,
            history_max_bytes: DEFAULT_HISTORY_MAX_BYTES,
            min_free_bytes: DEFAULT_MIN_FREE_BYTES,
        }
    }
}
