//! Errors of a ledger on disk.
//!
//! A [`Fault`] is the environment's; [`Damage`] is a disk that does not hold what was written; both name
//! the file. Neither is ever repaired here.

use std::io;

use super::frame::FORMAT_VERSION;
use crate::{ClusterId, ErrorKind, Position, SnapshotError};

/// A call to the operating system that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {file}: {source}")]
pub struct Fault {
    pub action: &'static str,
    pub file: String,
    #[source]
    pub source: io::Error,
}

impl Fault {
    pub(super) fn of<'a>(action: &'static str, file: &'a str) -> impl FnOnce(io::Error) -> Self + 'a {
        move |source| Self { action, file: file.to_owned(), source }
    }
}

/// Bytes on disk that are not what was written, and what they put at risk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} at byte {offset}: {what}; {}", at_risk(*from, *to))]
pub struct Damage {
    pub file: String,
    pub offset: u64,
    pub what: &'static str,
    /// The first position at risk.
    pub from: Position,
    /// The last position at risk, when it is known.
    pub to: Option<Position>,
}

fn at_risk(from: Position, to: Option<Position>) -> String {
    match to {
        Some(to) => format!("positions at risk: {} to {}", from.0, to.0),
        None => format!("positions at risk: {} and after", from.0),
    }
}

/// Why a ledger cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] Fault),
    #[error("the ledger is damaged: {0}")]
    Damaged(Damage),
    #[error(
        "the last frame cannot be verified: {0}; it may have been acknowledged, so it is dropped only on request"
    )]
    UnverifiedTail(Damage),
    #[error("{file} has format version {found}, but this software reads at most version {FORMAT_VERSION}")]
    NewerVersion { file: String, found: u16 },
    #[error("the data directory is in use by another process")]
    Locked,
    #[error("the data directory is missing or empty, and initialising it was not asked for")]
    NotInitialised,
    #[error("the data directory has no identity file but holds {name:?}: it is not a ledger's")]
    Foreign { name: String },
    #[error("the data directory belongs to cluster {found}, not to {expected}")]
    WrongCluster { found: ClusterId, expected: ClusterId },
    #[error("segment_bytes must be a multiple of 512, and at least {min}")]
    SegmentBytes { min: u64 },
    #[error("position {0} is not durable yet")]
    BeyondEnd(Position),
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError<E> {
    #[error(transparent)]
    Ledger(#[from] Error),
    /// The visitor's own error.
    #[error("the record at position {0} was not accepted: {1}")]
    Visit(Position, E),
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> crate::Error {
        let kind = match &error {
            Error::Io(_) => ErrorKind::Unavailable,
            Error::Damaged(_) | Error::UnverifiedTail(_) => ErrorKind::Damaged,
            Error::BeyondEnd(_) => ErrorKind::BeyondEnd,
            _ => ErrorKind::Refused,
        };
        crate::Error::new(kind, error)
    }
}

impl From<Fault> for crate::Error {
    fn from(fault: Fault) -> crate::Error {
        Error::Io(fault).into()
    }
}

impl From<Fault> for SnapshotError {
    fn from(fault: Fault) -> SnapshotError {
        SnapshotError::Storage(fault.into())
    }
}
