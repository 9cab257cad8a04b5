//! The ledger in a directory: segments of frames, snapshots, one reserve segment, one owner.
//!
//! Reading order: `frame` and `segment` are the format, `ledger` appends, `open` and `tail` recover,
//! `inspect` looks without a lock, the rest is what its name says. Nothing here knows what a record means.

mod batch;
mod error;
mod frame;
mod hold;
mod identity;
mod init;
mod inspect;
mod ledger;
mod names;
mod open;
mod options;
mod reader;
mod replay;
mod reserve;
mod scan;
mod segment;
mod shared;
mod snapshot;
mod snapshot_reader;
mod snapshot_writer;
mod tail;
mod trim;

pub use batch::{Batch, BatchBuilder, BatchFull};
pub use error::{AppendError, Damage, Error, Fault, Refusal, ReplayError};
pub use frame::{FORMAT_VERSION, MAX_BATCH_BYTES, SECTOR_BYTES};
pub use hold::Hold;
pub use identity::ClusterId;
pub use inspect::{End, FrameInfo, Inspection, Seen, SegmentInfo, Unfinished};
pub use ledger::FileLedger;
pub use open::OpenReport;
pub use options::{DEFAULT_HISTORY_MAX_AGE_MS, DEFAULT_HISTORY_MAX_BYTES, DEFAULT_SEGMENT_BYTES, Options};
pub use reader::{Reader, Records};
pub use reserve::{ReserveJob, Reserved, Space};
pub use segment::MIN_SEGMENT_BYTES;
pub use shared::SnapshotInfo;
pub use snapshot::MAX_BLOCK_BYTES;
pub use snapshot_reader::SnapshotReader;
pub use snapshot_writer::{SnapshotError, SnapshotWriter};
pub use tail::{DropReason, Dropped, Rewritten};
pub use trim::{SNAPSHOTS_KEPT, TrimJob};

#[cfg(test)]
mod tests;
