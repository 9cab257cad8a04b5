//! Reads a task's history backward from its last record. Each record holds the position of the task's record before it.

use std::sync::Arc;

use authority::Position;
use ledger::{ErrorKind, HistoryRecord, Reader, record};

use crate::request::Unavailable;

/// The most records in one history. The oldest records are left out.
pub const MAX_HISTORY_RECORDS: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Oldest first.
    pub records: Vec<HistoryRecord>,
    /// Whether older records exist, or existed, that the history leaves out.
    pub truncated: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("the ledger could not be read: {0}")]
    Ledger(String),
}

/// Reads histories beside the writer. Calls block on the storage.
pub trait HistoryReader: Send + Sync {
    fn history(&self, last: Position) -> Result<History, HistoryError>;
}

/// Reads histories from the ledger.
pub(crate) struct LedgerHistory {
    reader: Arc<dyn Reader>,
}

impl LedgerHistory {
    pub(crate) fn new(reader: Arc<dyn Reader>) -> LedgerHistory {
        LedgerHistory { reader }
    }

    /// Reads a record, and once more when the storage cannot be reached: a connection that was cut is made again.
    fn record(&self, position: Position) -> Result<Option<Vec<u8>>, HistoryError> {
        let is_away = |error: &ledger::Error| error.kind() == ErrorKind::Unavailable;
        let read = match self.reader.record(position) {
            Err(error) if is_away(&error) => self.reader.record(position),
            read => read,
        };
        read.map_err(|error| {
            if is_away(&error) {
                tracing::warn!(%error, "a task's history cannot be read now");
                HistoryError::Unavailable(Unavailable::NoOwner)
            } else {
                HistoryError::Ledger(error.to_string())
            }
        })
    }
}

impl HistoryReader for LedgerHistory {
    fn history(&self, last: Position) -> Result<History, HistoryError> {
        let mut history = History { records: Vec::new(), truncated: false };
        let mut next = Some(last);
        while let Some(position) = next {
            let Some(bytes) = self.record(position)?.filter(|_| history.records.len() < MAX_HISTORY_RECORDS)
            else {
                history.truncated = true;
                break;
            };
            let decoded = record::decode(&bytes).map_err(|error| HistoryError::Ledger(error.to_string()))?;
            history.records.push(HistoryRecord { position, at: decoded.at, event: decoded.event });
            next = decoded.prev;
        }
        history.records.reverse();
        Ok(history)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use ledger::memory::MemoryStorage;
    use ledger::{Error, Hold, SnapshotInfo, SnapshotSource, Visit};

    use super::*;

    /// A storage that cannot be reached for the first calls.
    struct Away(AtomicU32, MemoryStorage);

    impl Reader for Away {
        fn record(&self, position: Position) -> Result<Option<Vec<u8>>, Error> {
            let is_away =
                self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |calls| calls.checked_sub(1));
            match is_away {
                Ok(_) => Err(Error::new(ErrorKind::Unavailable, "connection closed")),
                Err(_) => Ok(Some(position.0.to_be_bytes().to_vec())),
            }
        }

        fn first(&self) -> Result<Position, Error> {
            self.1.first()
        }

        fn next(&self) -> Result<Position, Error> {
            self.1.next()
        }

        fn read(&self, from: Position, to: Position, visit: &mut Visit<'_>) -> Result<(), Error> {
            self.1.read(from, to, visit)
        }

        fn snapshots(&self) -> Result<Vec<SnapshotInfo>, Error> {
            self.1.snapshots()
        }

        fn load_snapshot(&self, info: &SnapshotInfo) -> Result<Box<dyn SnapshotSource>, Error> {
            self.1.load_snapshot(info)
        }

        fn hold(&self, name: &str, from: Position) -> Result<Box<dyn Hold>, Error> {
            self.1.hold(name, from)
        }
    }

    fn history(calls: u32) -> LedgerHistory {
        LedgerHistory::new(Arc::new(Away(AtomicU32::new(calls), MemoryStorage::default())))
    }

    /// A session with the database that was cut made a read fail as if the ledger were damaged.
    #[test]
    fn a_connection_that_was_cut_is_made_again_and_a_database_that_is_away_is_no_damage() {
        assert!(matches!(history(1).record(Position(7)), Ok(Some(_))));
        let away = history(2).record(Position(7));
        assert!(matches!(away, Err(HistoryError::Unavailable(_))), "{away:?}");
    }
}
