//! What a ledger's directory says about the past: when a record was made, what the state was after it, and whether
//! all of it is sound. Read from an [`Inspection`], so it changes nothing and needs no lock.

#[cfg(test)]
mod tests;
mod verify;

use std::ops::ControlFlow;

use authority::{Position, State, Time};

pub use verify::{Finding, SnapshotReport, VerifyReport, verify};

use crate::file::{self, Inspection, Seen};
use crate::record::{self, Record};
use crate::{Recovery, RecoveryError};

/// Why a question about the past has no answer.
#[derive(Debug, thiserror::Error)]
pub enum TimeTravelError {
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    #[error("the log begins at position {first}; what was true at {wanted} is no longer kept")]
    Trimmed { wanted: Position, first: Position },
    #[error("the log ends at position {last}, before {wanted}")]
    Beyond { wanted: Position, last: Position },
}

impl From<file::Error> for TimeTravelError {
    fn from(error: file::Error) -> TimeTravelError {
        TimeTravelError::Recovery(error.into())
    }
}

/// Calls `visit` with every record at or after `from`, in order, until it breaks.
pub fn records(
    inspection: &Inspection,
    from: Position,
    visit: &mut dyn FnMut(Position, Record) -> ControlFlow<()>,
) -> Result<(), RecoveryError> {
    let mut failed = Ok(());
    inspection.read(from, &mut |position, bytes| match record::decode(bytes) {
        Ok(record) => visit(position, record),
        Err(error) => {
            failed = Err(RecoveryError::Record(position, error));
            ControlFlow::Break(())
        }
    })?;
    failed
}

/// The first position whose record was made at `time` or later: the end of the log when there is none.
pub fn first_at_or_after(inspection: &Inspection, time: Time) -> Result<Position, RecoveryError> {
    // Time never falls, so what stands before the last segment begun earlier was made earlier too.
    let earlier = inspection.segments().take_while(|segment| segment.time_ms < time.0);
    let from = earlier.last().map_or(inspection.first(), |segment| segment.first);
    let mut next = from;
    records(inspection, from, &mut |position, record| {
        next = position;
        if record.at >= time {
            return ControlFlow::Break(());
        }
        next = position.next();
        ControlFlow::Continue(())
    })?;
    Ok(next)
}

/// The last position of the log; 0 when it is empty.
pub fn last(inspection: &Inspection) -> Result<Position, RecoveryError> {
    let newest = inspection.segments().last().map_or(Position(1), |segment| segment.first);
    let end = inspection.read(newest, &mut |_, _| ControlFlow::Continue(()))?;
    Ok(Position(end.next.0.saturating_sub(1)))
}

/// The state after the record at `wanted`: from the newest usable snapshot that ended by then, or from the start.
pub fn state_at(inspection: &Inspection, wanted: Position) -> Result<State, TimeTravelError> {
    let first = inspection.first();
    let mut recovery = None;
    for info in inspection.snapshots().rev().filter(|info| info.end <= wanted) {
        // A snapshot that cannot be used is the business of `verify`; an older one, or the log, does as well.
        if let Ok(mut reader) = inspection.snapshot(info)
            && let Ok(loaded) = Recovery::from_snapshot(&mut reader)
        {
            recovery = Some(loaded);
            break;
        }
    }
    let mut recovery = match recovery {
        Some(recovery) => recovery,
        None if first == Position(1) => Recovery::new(),
        None => return Err(TimeTravelError::Trimmed { wanted, first }),
    };
    let mut failed = Ok(());
    inspection.walk(recovery.next(), &mut |seen| {
        if recovery.next() > wanted {
            return ControlFlow::Break(());
        }
        let applied = match seen {
            Seen::Frame(_) => Ok(()),
            Seen::Record(position, bytes) => recovery.apply(position, bytes).map(|_| ()),
            Seen::Damage(damage) => Err(file::Error::Damaged(damage).into()),
        };
        match applied {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Err(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed?;
    match recovery.state().position() {
        last if last < wanted => Err(TimeTravelError::Beyond { wanted, last }),
        _ => Ok(recovery.into_state()),
    }
}
