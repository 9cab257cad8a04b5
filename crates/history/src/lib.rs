//! Answers questions about a ledger's past, beside a writer or without one.
//!
//! Everything here reads through [`ledger::Reader`], changes nothing and takes no lock. Only the checks of frames and
//! segments in `verify/files.rs` know the files of the file backend.

pub mod explain;
pub mod time_travel;
pub mod verify;
