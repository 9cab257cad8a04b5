//! A task's history: a walk back from its last record, each naming the one before it.

use authority::Position;
use ledger::file::Reader;
use ledger::{HistoryRecord, record};

use crate::request::Unavailable;

/// Most records shown of one task; the oldest are left out.
pub const MAX_HISTORY_RECORDS: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Oldest first.
    pub records: Vec<HistoryRecord>,
    /// Whether older records exist or existed that are not shown.
    pub truncated: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error("the ledger could not be read: {0}")]
    Ledger(String),
}

/// Reads histories beside the writer. It blocks on the disk.
pub trait HistoryReader: Send + Sync {
    fn history(&self, last: Position) -> Result<History, HistoryError>;
}

/// Histories from the ledger on disk.
pub struct LedgerHistory {
    reader: Reader,
}

impl LedgerHistory {
    pub fn new(reader: Reader) -> LedgerHistory {
        LedgerHistory { reader }
    }
}

impl HistoryReader for LedgerHistory {
    fn history(&self, last: Position) -> Result<History, HistoryError> {
        let mut history = History { records: Vec::new(), truncated: false };
        let mut next = Some(last);
        while let Some(position) = next {
            let read =
                self.reader.read_record(position).map_err(|error| HistoryError::Ledger(error.to_string()))?;
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
