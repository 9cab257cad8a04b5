//! A history of the database that is not the history of this node: told, written to a file, and never merged.

use std::path::Path;

use authority::Position;
use coordinator::wall;
use ledger::postgres::{self, Place};
use ledger::{ErrorKind, RecoveryError};

/// Where two histories part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fork {
    /// The first position at which they differ.
    pub at: Position,
    /// This node knows that the records before this position were durable.
    pub known: Position,
}

impl Fork {
    /// The fork that an error tells of, if it does.
    pub(crate) fn of(error: &RecoveryError, known: Position) -> Option<Fork> {
        match error {
            RecoveryError::Ledger(error) => Fork::of_ledger(error, known),
            _ => None,
        }
    }

    pub(crate) fn of_ledger(error: &ledger::Error, known: Position) -> Option<Fork> {
        if error.kind() != ErrorKind::Forked {
            return None;
        }
        let at = match error.downcast_ref() {
            Some(postgres::Error::Forked(at)) => *at,
            _ => known,
        };
        Some(Fork { at, known })
    }

    /// Tells the operator. `last` is the last batch that this node holds.
    pub(crate) fn report(&self, node: &str, last: Option<Place>, file: Option<&Path>) {
        let (at, known_up_to) = (self.at.0, self.known.0.saturating_sub(1));
        tracing::error!(
            at,
            known_up_to,
            "PostgreSQL has another history than this node from this position on. Records that were acknowledged are not in \
             it. This node owns the ledger no more, and forwards requests; restart it to accept the history of the database"
        );
        let Some(file) = file else { return };
        let link = last.map(|last| last.link.to_string()).unwrap_or_default();
        let text = format!(
            "{{\"node\":{node:?},\"shard\":0,\"atMs\":{},\"firstDifferentPosition\":{at},\"knownUpTo\":{known_up_to},\
             \"lastLink\":\"{link}\"}}\n",
            wall().0
        );
        if let Err(error) = std::fs::write(file, text) {
            tracing::error!(file = %file.display(), %error, "the positions of the fork could not be written");
        }
    }
}
