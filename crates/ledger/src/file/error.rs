//! Errors of a ledger on disk.
//!
//! A [`Fault`] comes from the operating system; [`Damage`] is a disk that does not hold what was written. Both name the
//! file, and neither is repaired.

use std::io;

use super::frame::FORMAT_VERSION;
use crate::{ClusterId, Damage, ErrorKind, Position, SnapshotError};

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

impl From<Damage> for Error {
    fn from(damage: Damage) -> Error {
        Error::Damaged(damage)
    }
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> crate::Error {
        let kind = match &error {
            Error::Io(_) => ErrorKind::Unavailable,
            Error::Damaged(_) | Error::UnverifiedTail(_) => ErrorKind::Damaged,
            Error::BeyondEnd(_) => ErrorKind::BeyondEnd,
            _ => ErrorKind::Refused,
        };
        let damage = match &error {
            Error::Damaged(damage) => Some(damage.clone()),
            _ => None,
        };
        crate::Error::new(kind, error).with_damage(damage)
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
