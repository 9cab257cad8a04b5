//! Recovers the state from a snapshot, if there is one, and the records after it.
//!
//! A start, offline tools and tests all recover the state in this way. A recovery does not know where the bytes come
//! from, so its caller decides how far to go.

use std::ops::ControlFlow;
use std::thread;

use authority::{InvalidTransition, Position, State};

use crate::pipeline::Pipeline;
use crate::record::snapshot::{BlockDecoder, LoadError, Loader, SnapshotEntry};
use crate::record::{self, DecodeError, Record};
use crate::{Error, Ledger, SnapshotInfo, SnapshotSource};

/// A state that is being recovered.
#[derive(Debug, Default)]
pub struct Recovery {
    state: State,
    reader: record::Reader,
    blocks: u64,
    records: u64,
    bytes: u64,
}

/// Why a state could not be recovered. The partial state must be dropped.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    #[error(transparent)]
    Ledger(#[from] Error),
    #[error("the ledger holds a record that does not fit and may have been tampered with: {0}")]
    InvalidTransition(#[from] InvalidTransition),
    #[error("the record at position {0} cannot be read: {1}")]
    Record(Position, DecodeError),
    #[error("the record at position {found} was given where {expected} should follow")]
    Gap { expected: Position, found: Position },
    #[error(transparent)]
    Snapshot(#[from] LoadError),
    #[error("a thread for the recovery could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl Recovery {
    /// Begins with nothing, for a log that is there from its first record.
    pub fn new() -> Recovery {
        Recovery::default()
    }

    /// Begins with what a snapshot holds.
    pub fn from_snapshot(snapshot: &mut dyn SnapshotSource) -> Result<Recovery, RecoveryError> {
        let (loader, blocks) = load(snapshot)?;
        let SnapshotInfo { begin: expected, end, .. } = *snapshot.info();
        let state = loader.finish(end)?;
        let found = state.position();
        if found != expected {
            return Err(RecoveryError::Gap { expected, found });
        }
        Ok(Recovery { state, blocks, ..Recovery::default() })
    }

    /// Restores the newest state of a ledger: its newest snapshot, if it has one, and all records after that.
    pub fn newest(ledger: &dyn Ledger) -> Result<Recovery, RecoveryError> {
        let reader = ledger.reader();
        let recovery = match reader.snapshots()?.last() {
            Some(newest) => Recovery::from_snapshot(&mut *reader.load_snapshot(newest)?)?,
            None => Recovery::new(),
        };
        recovery.replay(ledger)
    }

    /// Applies every record of the ledger from the next position on.
    fn replay(mut self, ledger: &dyn Ledger) -> Result<Recovery, RecoveryError> {
        let (next, mut reader) = (self.next(), std::mem::take(&mut self.reader));
        let (mut failed, mut bytes) = (Ok(()), 0);
        let recovery = thread::scope(|scope| {
            let mut pipeline = Pipeline::new(scope, self, |recovery: &mut Recovery, (position, record)| {
                recovery.apply_record(position, &record)
            });
            let read = ledger.replay(next, &mut |position, stored| {
                bytes += stored.len() as u64;
                let decoded = reader.decode(stored).map_err(|error| RecoveryError::Record(position, error));
                match decoded.and_then(|record| pipeline.send((position, record))) {
                    Ok(true) => ControlFlow::Continue(()),
                    Ok(false) => ControlFlow::Break(()),
                    Err(error) => {
                        failed = Err(error);
                        ControlFlow::Break(())
                    }
                }
            });
            // A record that cannot be applied comes before one that cannot be read or decoded.
            let recovery = pipeline.finish()?;
            read?;
            Ok::<_, RecoveryError>(recovery)
        })?;
        failed?;
        Ok(Recovery { reader, bytes, ..recovery })
    }

    /// The position of the record that must come next.
    pub fn next(&self) -> Position {
        self.state.position().next()
    }

    /// Applies the record at the next position, and hands it back.
    pub fn apply(&mut self, position: Position, bytes: &[u8]) -> Result<Record, RecoveryError> {
        let record = self.reader.decode(bytes).map_err(|error| RecoveryError::Record(position, error))?;
        self.apply_record(position, &record)?;
        self.bytes += bytes.len() as u64;
        Ok(record)
    }

    /// Applies a record that was decoded before.
    pub fn apply_record(&mut self, position: Position, record: &Record) -> Result<(), RecoveryError> {
        if position != self.next() {
            return Err(RecoveryError::Gap { expected: self.next(), found: position });
        }
        self.state.apply(record.at, &record.event)?;
        self.records += 1;
        Ok(())
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn into_state(self) -> State {
        self.state
    }

    /// The number of snapshot blocks that were loaded.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// How many records were applied.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How many bytes these records had.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Feeds every block of a snapshot into a loader.
fn load(snapshot: &mut dyn SnapshotSource) -> Result<(Loader, u64), RecoveryError> {
    thread::scope(|scope| {
        let mut pipeline = Pipeline::new(scope, Loader::new(), load_entry);
        let (mut decoder, mut block, mut blocks) = (BlockDecoder::default(), Vec::new(), 0);
        while snapshot.next_block(&mut block)? {
            for entry in decoder.entries(&block) {
                if !pipeline.send(entry.map_err(LoadError::from)?)? {
                    return Ok((pipeline.finish()?, blocks));
                }
            }
            blocks += 1;
        }
        Ok((pipeline.finish()?, blocks))
    })
}

fn load_entry(loader: &mut Loader, entry: SnapshotEntry) -> Result<(), RecoveryError> {
    Ok(loader.entry(entry)?)
}
