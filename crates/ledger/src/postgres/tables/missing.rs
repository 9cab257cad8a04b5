//! What the tables lack when an owner begins: the changes of the records that were committed without them.

use authority::Position;

use super::replay::{replay, state_at};
use crate::{Changes, Reader, RecoveryError};

/// The net change of the records after `from` up to `to`; none when the ledger no longer says what was before.
pub(in crate::postgres) fn missing_changes(
    reader: &dyn Reader,
    from: Position,
    to: Position,
) -> Result<Option<Changes>, RecoveryError> {
    let mut changes = Changes::default();
    if from < to {
        let Some(recovery) = state_at(reader, from)? else { return Ok(None) };
        replay(recovery, reader, to, Some(&mut changes))?;
    }
    Ok(Some(changes))
}
