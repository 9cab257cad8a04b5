//! Replays a part of the ledger, and notes what it changes.

use std::ops::ControlFlow;

use authority::Position;

use crate::changes::Before;
use crate::record;
use crate::{Changes, Reader, Recovery, RecoveryError};

/// The state at a position, from the newest snapshot that ended by then; none when the ledger no longer says.
pub(super) fn state_at(reader: &dyn Reader, wanted: Position) -> Result<Option<Recovery>, RecoveryError> {
    let snapshots = reader.snapshots()?;
    let recovery = match snapshots.iter().rev().find(|info| info.end <= wanted) {
        Some(info) => Recovery::from_snapshot(&mut *reader.load_snapshot(info)?)?,
        None if reader.first()? == Position(1) => Recovery::new(),
        None => return Ok(None),
    };
    replay(recovery, reader, wanted, None).map(Some)
}

/// So often a read begins again because the ledger was trimmed meanwhile.
const MAX_RETRIES: usize = 10;

/// Reads the ledger, and begins again when it fails because the ledger was trimmed meanwhile.
pub(super) fn despite_trims<T>(
    reader: &dyn Reader,
    read: impl Fn() -> Result<T, RecoveryError>,
) -> Result<T, RecoveryError> {
    for _ in 0..MAX_RETRIES {
        let before = reader.snapshots()?;
        match read() {
            Err(_) if reader.snapshots()? != before => {}
            result => return result,
        }
    }
    read()
}

/// The oldest state that the ledger knows. A snapshot is exact where it ends.
pub(super) fn oldest(reader: &dyn Reader) -> Result<Recovery, RecoveryError> {
    if reader.first()? == Position(1) {
        return Ok(Recovery::new());
    }
    match reader.snapshots()?.first() {
        Some(info) => {
            let recovery = Recovery::from_snapshot(&mut *reader.load_snapshot(info)?)?;
            replay(recovery, reader, info.end, None)
        }
        None => Ok(Recovery::new()),
    }
}

/// Applies the records up to and including `to`, and notes what they change.
pub(super) fn replay(
    mut recovery: Recovery,
    reader: &dyn Reader,
    to: Position,
    mut changes: Option<&mut Changes>,
) -> Result<Recovery, RecoveryError> {
    let mut failed: Result<(), RecoveryError> = Ok(());
    let from = recovery.next();
    if from <= to {
        reader.read(from, to, &mut |position, bytes| {
            failed = apply(&mut recovery, position, bytes, changes.as_deref_mut());
            if failed.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
    }
    failed?;
    if let Some(changes) = changes {
        changes.close(recovery.state());
    }
    Ok(recovery)
}

fn apply(
    recovery: &mut Recovery,
    position: Position,
    bytes: &[u8],
    changes: Option<&mut Changes>,
) -> Result<(), RecoveryError> {
    let record = record::decode(bytes).map_err(|error| RecoveryError::Record(position, error))?;
    let before = Before::of(recovery.state(), &record.event);
    recovery.apply_record(position, &record)?;
    if let Some(changes) = changes {
        changes.after(before, recovery.state(), record.at, position, &record.event);
    }
    Ok(())
}
