//! Answers questions about a ledger's past, beside a writer or without one.
//!
//! Everything here reads through [`ledger::Reader`], changes nothing and takes no lock.

pub mod explain;
pub mod time_travel;
pub mod verify;
