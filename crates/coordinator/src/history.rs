//! Reads a task's history backward from its last record. Each record holds the position of the task's record before it.

use std::sync::Arc;

use authority::Position;
use ledger::{HistoryRecord, Reader, record};

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
}

impl HistoryReader for LedgerHistory {
    fn history(&self, last: Position) -> Result<History, HistoryError> {
        let mut history = History { records: Vec::new(), truncated: false };
        let mut next = Some(last);
        while let Some(position) = next {
            let read =
                self.reader.record(position).map_err(|error| HistoryError::Ledger(error.to_string()))?;
            let Some(bytes) = read.filter(|_| history.records.len() < MAX_HISTORY_RECORDS) else {
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
