//! Time travel: finds records by time, and restores the state as it was after any record.

use std::ops::ControlFlow;

use authority::{Position, QueueDefaults, State, Time};
use ledger::record::{self, Record};
use ledger::{Error, Reader, Recovery, RecoveryError};

/// The position of no record: reads up to it end with the ledger.
const END: Position = Position(u64::MAX);

/// Why the state at a position is unknown.
#[derive(Debug, thiserror::Error)]
pub enum TimeTravelError {
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    #[error("the log begins at position {first}; the state at {wanted} is no longer known")]
    Trimmed { wanted: Position, first: Position },
    #[error("the log ends at position {last}, before {wanted}")]
    Beyond { wanted: Position, last: Position },
}

impl From<Error> for TimeTravelError {
    fn from(error: Error) -> TimeTravelError {
        TimeTravelError::Recovery(error.into())
    }
}

/// Decodes every record at or after `from` and calls `visit` with it, in order, until `visit` breaks.
pub fn records(
    reader: &dyn Reader,
    from: Position,
    visit: &mut dyn FnMut(Position, Record) -> ControlFlow<()>,
) -> Result<(), RecoveryError> {
    let mut failed = Ok(());
    reader.read(from, END, &mut |position, bytes| match record::decode(bytes) {
        Ok(record) => visit(position, record),
        Err(error) => {
            failed = Err(RecoveryError::Record(position, error));
            ControlFlow::Break(())
        }
    })?;
    failed
}

/// The first position whose record was made at `time` or later. Without such a record: the end of the log.
pub fn first_at_or_after(reader: &dyn Reader, time: Time) -> Result<Position, RecoveryError> {
    let from = reader.seek(time)?;
    let mut next = from;
    records(reader, from, &mut |position, record| {
        next = position;
        if record.at >= time {
            return ControlFlow::Break(());
        }
        next = position.next();
        ControlFlow::Continue(())
    })?;
    Ok(next)
}

/// The last position of the log; 0 when the log is empty.
pub fn last(reader: &dyn Reader) -> Result<Position, RecoveryError> {
    Ok(Position(reader.next()?.0.saturating_sub(1)))
}

/// The state after the record at `wanted`, from the newest usable snapshot that ended by then, or from the start.
/// `defaults` are those of the server that made the decisions.
pub fn state_at(
    reader: &dyn Reader,
    wanted: Position,
    defaults: QueueDefaults,
) -> Result<State, TimeTravelError> {
    let first = reader.first()?;
    let snapshots = reader.snapshots()?;
    // `verify` reports a snapshot that cannot be used. An older snapshot, or the log, gives the same state.
    let loaded = snapshots.iter().rev().filter(|info| info.end <= wanted).find_map(|info| {
        let mut snapshot = reader.load_snapshot(info).ok()?;
        Recovery::from_snapshot(&mut *snapshot).ok()
    });
    let mut recovery = match loaded {
        Some(recovery) => recovery,
        None if first == Position(1) => Recovery::new(),
        None => return Err(TimeTravelError::Trimmed { wanted, first }),
    };
    let mut failed = Ok(());
    reader.read(recovery.next(), wanted, &mut |position, bytes| match recovery.apply(position, bytes) {
        Ok(_) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Err(error);
            ControlFlow::Break(())
        }
    })?;
    failed?;
    let last = recovery.state().position();
    if last < wanted {
        return Err(TimeTravelError::Beyond { wanted, last });
    }
    let mut state = recovery.into_state();
    state.set_queue_defaults(defaults);
    Ok(state)
}
