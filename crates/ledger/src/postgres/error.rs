//! Errors of the PostgreSQL backend.

use tokio_postgres::error::SqlState;

use crate::{ErrorKind, Position};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}", describe(.0))]
    Database(#[from] tokio_postgres::Error),
    /// The server or its content must not be used.
    #[error("{0}")]
    Refused(String),
    #[error("the database holds no Lessor cluster; create one with `lessor cluster init`")]
    NotInitialized,
    #[error(
        "the database holds a migration that was not finished; run `lessor migrate` again, or remove what is there with \
         DROP SCHEMA lessor CASCADE"
    )]
    Incomplete,
    #[error("the database was changed from outside: {0}")]
    Damaged(String),
    #[error("the database has another history from position {0} on than the one that was followed")]
    Forked(Position),
    #[error("the history from record {from} is no longer kept; the ledger starts at {first}")]
    Trimmed { from: Position, first: Position },
    #[error("the snapshot was replaced by a newer one while it was loaded")]
    SnapshotGone,
    #[error("position {0} is not durable yet")]
    BeyondEnd(Position),
    #[error("PostgreSQL does not answer")]
    Silent,
    #[error("the ledger was closed while it waited for the database")]
    Closed,
    #[error("a thread or runtime for the database could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

/// The words of the server, where it has said something; the crate's own text only names the kind of error.
fn describe(error: &tokio_postgres::Error) -> String {
    match (error.as_db_error(), std::error::Error::source(error)) {
        (Some(said), _) => format!("PostgreSQL says: {} ({})", said.message(), said.code().code()),
        (None, Some(source)) => format!("PostgreSQL cannot be used: {error}: {source}"),
        (None, None) => format!("PostgreSQL cannot be used: {error}"),
    }
}

impl Error {
    pub(super) fn state(&self) -> Option<&SqlState> {
        match self {
            Error::Database(error) => error.code(),
            _ => None,
        }
    }

    /// The server has no space for more.
    pub(super) fn is_full(&self) -> bool {
        self.state() == Some(&SqlState::DISK_FULL)
    }

    /// A value is none of its type (class 22).
    pub(super) fn is_unusable_value(&self) -> bool {
        self.state().is_some_and(|state| state.code().starts_with("22"))
    }

    /// Another batch has the position.
    pub(super) fn is_taken(&self) -> bool {
        self.state() == Some(&SqlState::UNIQUE_VIOLATION) && self.table() == Some("batch")
    }

    /// The server refuses what the tables of tasks would hold: a constraint, a trigger or a changed column.
    pub(super) fn is_of_tables(&self) -> bool {
        let classes = ["22", "23", "42", "P0"];
        let is_refusal = |state: &SqlState| classes.iter().any(|class| state.code().starts_with(class));
        self.state().is_some_and(is_refusal) && self.table() != Some("batch")
    }

    fn table(&self) -> Option<&str> {
        match self {
            Error::Database(error) => error.as_db_error()?.table(),
            _ => None,
        }
    }
}

impl From<Error> for crate::Error {
    fn from(error: Error) -> crate::Error {
        let kind = match &error {
            Error::Refused(_) | Error::NotInitialized | Error::Incomplete => ErrorKind::Refused,
            Error::Damaged(_) => ErrorKind::Damaged,
            Error::Forked(_) => ErrorKind::Forked,
            Error::Trimmed { .. } | Error::SnapshotGone => ErrorKind::Trimmed,
            Error::BeyondEnd(_) => ErrorKind::BeyondEnd,
            Error::Database(_) | Error::Silent | Error::Closed | Error::Thread(_) => ErrorKind::Unavailable,
        };
        crate::Error::new(kind, error)
    }
}

impl From<Error> for crate::RecoveryError {
    fn from(error: Error) -> crate::RecoveryError {
        crate::Error::from(error).into()
    }
}
