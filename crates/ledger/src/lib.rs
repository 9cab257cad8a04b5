//! The append-only log that makes the authority's decisions true.
//!
//! A record is durable when [`Ledger::append`] returns, and never before. To this crate's file layer a
//! record is opaque bytes at a position; positions start at 1 and have no gaps.
//! The layout on disk is drawn to the byte in `docs/format.md`.

pub mod digest;
pub mod disk;
pub mod explain;
pub mod file;
mod history_record;
mod ledger;
pub mod record;
mod recovery;
pub mod time_travel;

pub use authority::Position;
pub use history_record::HistoryRecord;
pub use ledger::{Ledger, SnapshotSink, SnapshotSource};
pub use recovery::{Recovery, RecoveryError};
