//! The ledger in a directory: segments of frames, snapshots, one reserve segment, one owner.
//!
//! Reading order: `frame` and `segment` are the format, `ledger` appends, `open` and `tail` recover, `inspect` reads
//! without the lock. Nothing here knows what a record means.

mod atomic;
mod error;
mod frame;
mod init;
mod inspect;
mod ledger;
mod names;
mod offsets;
mod open;
mod options;
mod reader;
mod replay;
mod reserve;
mod rules;
mod scan;
mod sealed;
mod segment;
mod shared;
mod snapshot;
mod snapshot_reader;
mod snapshot_writer;
mod tail;
mod trim;

pub use error::{Error, Fault};
pub use frame::{FORMAT_VERSION, SECTOR_BYTES};
pub use inspect::{Inspection, SegmentInfo};
pub use ledger::FileLedger;
pub use offsets::OffsetFiles;
pub use open::{OFFSETS, OpenReport, is_initialised, open_data_dir};
pub use options::{DEFAULT_HISTORY_MAX_AGE_MS, DEFAULT_HISTORY_MAX_BYTES, DEFAULT_SEGMENT_BYTES, Options};
pub use reader::FileReader;
pub use reserve::ReserveJob;
pub use segment::MIN_SEGMENT_BYTES;
pub use snapshot::MAX_BLOCK_BYTES;
pub use snapshot_reader::SnapshotReader;
pub use snapshot_writer::SnapshotWriter;
pub use tail::{DropReason, Dropped, Rewritten};
pub use trim::{SNAPSHOTS_KEPT, TrimJob};

#[cfg(test)]
mod tests;
