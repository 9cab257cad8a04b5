//! The audit trail: the lines of the audit log in files of their own, in the data directory. Each line has a number, the MAC
//! of the line before it and its own, so that a line that was changed, removed or inserted is found.

pub(crate) mod chain;
mod files;
mod line;
mod read;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

pub use files::{DIRECTORY, MAX_FILE_BYTES, MAX_FILES};
pub use line::AuditLine;
pub use read::{Head, durable_head, head, lines};
pub use verify::{Finding, LedgerEnd, Report, verify};
pub use writer::AuditTrail;
