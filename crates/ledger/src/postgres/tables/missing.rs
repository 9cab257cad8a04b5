//! The changes that the tables lack when an owner begins: of the records that were committed without them.

use authority::Position;

use super::replay::{replay, state_at};
use crate::postgres::Error;
use crate::{Changes, Reader, RecoveryError};

/// More records are left to a rebuild: they would hold up the start, and go into one statement.
const MAX_RECORDS: u64 = 100_000;

/// The net change of the records after `from` up to `to`; none when they are too many, or the
/// ledger no longer says what was before.
pub(in crate::postgres) fn missing_changes(
    reader: &dyn Reader,
    from: Position,
    to: Position,
) -> Result<Option<Changes>, RecoveryError> {
    let mut changes = Changes::default();
    if to.0.saturating_sub(from.0) > MAX_RECORDS {
        return Ok(None);
    }
    if from < to {
        let Some(recovery) = state_at(reader, from)? else { return Ok(None) };
        let end = replay(recovery, reader, to, Some(&mut changes))?.state().position();
        if end < to {
            return Err(crate::Error::from(Error::BeyondEnd(to)).into());
        }
    }
    Ok(Some(changes))
}
