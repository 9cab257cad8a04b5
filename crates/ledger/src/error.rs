//! Errors of a ledger that mean the same for every storage backend.

use std::borrow::Cow;
use std::fmt;

use crate::Position;

pub(crate) type Source = Box<dyn std::error::Error + Send + Sync>;

/// Why a ledger could not be opened, read or written: the kind of problem, and the backend's own error.
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    source: Source,
    damage: Option<Damage>,
}

/// Something stored that is not what was written, and what it puts at risk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} at byte {offset}: {what}; {}", at_risk(*from, *to))]
pub struct Damage {
    /// The file, or the backend's name of the damaged part.
    pub file: String,
    pub offset: u64,
    pub what: Cow<'static, str>,
    /// The first position at risk.
    pub from: Position,
    /// The last position at risk, when it is known.
    pub to: Option<Position>,
}

fn at_risk(from: Position, to: Option<Position>) -> String {
    match to {
        Some(to) => format!("positions at risk: {from} to {to}"),
        None => format!("positions at risk: {from} and after"),
    }
}

impl Damage {
    pub fn new(
        file: &str,
        offset: u64,
        what: impl Into<Cow<'static, str>>,
        from: Position,
        to: Option<Position>,
    ) -> Damage {
        Damage { file: file.to_owned(), offset, what: what.into(), from, to }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The storage failed or could not be reached.
    Unavailable,
    /// The storage does not hold what was written.
    Damaged,
    /// The storage is not a ledger that this software may use: another process uses it, it belongs to another
    /// cluster, or newer software wrote it.
    Refused,
    /// The storage has another history than the one that was followed.
    Forked,
    /// The position is no longer kept.
    Trimmed,
    /// The position is not durable yet.
    BeyondEnd,
}

impl Error {
    pub fn new(kind: ErrorKind, source: impl Into<Source>) -> Error {
        Error { kind, source: source.into(), damage: None }
    }

    /// Names the damage that caused the error.
    pub(crate) fn with_damage(self, damage: Option<Damage>) -> Error {
        Error { damage, ..self }
    }

    /// The damage that caused the error, where the backend can name it.
    pub fn damage(&self) -> Option<&Damage> {
        self.damage.as_ref()
    }

    /// Reading at `from` is impossible because the ledger starts at `first`.
    pub fn trimmed(from: Position, first: Position) -> Error {
        let what = format!("the history from record {from} is no longer kept; the ledger starts at {first}");
        Error::new(ErrorKind::Trimmed, what)
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The backend's own error, if it is a `T`.
    pub fn downcast_ref<T: std::error::Error + 'static>(&self) -> Option<&T> {
        self.source.downcast_ref()
    }

    #[cfg(test)]
    pub(crate) fn into_source(self) -> Source {
        self.source
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.source()
    }
}

/// Why a batch was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Nothing of the batch was stored, and the ledger can still be used.
    #[error("the batch was refused: {0}")]
    Refused(#[from] Refusal),
    /// Only the next start can tell whether the batch is durable. The ledger accepts no more appends.
    #[error("the outcome of the append is unknown: {0}")]
    Unknown(Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Another batch took the position, or will take the positions before it.
    #[error("it starts at position {found}, but the ledger continues at {expected}")]
    Fenced { expected: Position, found: Position },
    /// The storage holds another batch at a position that this writer knows to be durable, or has lost that batch for good.
    #[error("the storage has another history from position {at} on than this node")]
    Forked { at: Position },
    #[error("its {bytes} bytes are more than the storage takes at once")]
    TooLarge { bytes: usize },
    #[error("no space is left for it")]
    NoSpace,
}

/// Why a snapshot was not stored. The ledger is unchanged; a later attempt may succeed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("another snapshot is being written")]
    InProgress,
    #[error("a block of {0} bytes is too large")]
    BlockTooLarge(usize),
    /// A snapshot may hold nothing that a crash could still undo.
    #[error("the snapshot ends at {end}, but only {durable} is durable")]
    NotDurable { end: Position, durable: Position },
    #[error("the snapshot begins at {begin}, after its end {end}")]
    BeginsAfterEnd { begin: Position, end: Position },
    #[error(transparent)]
    Storage(#[from] Error),
}

impl SnapshotError {
    /// Refuses a snapshot of something that is not durable, or of nothing.
    pub(crate) fn check(begin: Position, end: Position, next: Position) -> Result<(), SnapshotError> {
        let durable = Position(next.0 - 1);
        if end > durable {
            return Err(SnapshotError::NotDurable { end, durable });
        }
        if begin > end {
            return Err(SnapshotError::BeginsAfterEnd { begin, end });
        }
        Ok(())
    }
}
