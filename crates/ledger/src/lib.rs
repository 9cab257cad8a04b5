//! The append-only log that makes the authority's decisions durable.
//!
//! A record is durable when [`Ledger::append`] returns, and never before. To a storage backend a record is opaque
//! bytes at a position; positions start at 1 and have no gaps. The traits in `ledger.rs` are all that a user of this
//! crate needs to know of a backend. `docs/format.md` describes the files of the `file` backend to the byte.

mod batch;
pub mod changes;
mod cluster_id;
pub mod digest;
mod error;
pub mod file;
mod history_record;
mod hold;
mod ledger;
mod link;
pub mod memory;
mod pipeline;
pub mod postgres;
pub mod record;
mod recovery;

pub use authority::Position;
pub use batch::{Batch, BatchBuilder, BatchFull, MAX_BATCH_BYTES};
pub use changes::{Changes, WantedChanges};
pub use cluster_id::ClusterId;
pub use error::{AppendError, Damage, Error, ErrorKind, Refusal, SnapshotError};
pub use history_record::HistoryRecord;
pub use ledger::{
    DiskSpace, Hold, InspectVisit, Inspected, Job, Ledger, ProjectionOffsets, Reader, Seen, SnapshotInfo,
    SnapshotSink, SnapshotSource, StopWaiting, Storage, StoredBatch, Unfinished, Visit,
};
pub use link::Link;
pub use recovery::{Recovery, RecoveryError};
