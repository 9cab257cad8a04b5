//! The way of a standby to the end of the ledger, where it can own the ledger.

use std::future::Future;

use authority::Position;
use coordinator::{Standby, StartError};
use ledger::postgres::Kept;
use ledger::{Error, Link, Reader};

/// Attempts to reach the end of a ledger that somebody still writes.
const MAX_ATTEMPTS: usize = 3;

/// Brings a standby to the end of the ledger. `open` opens the ledger and appends first what the standby holds and the database
/// does not; `end` lets an open ledger hold what the standby has read meanwhile, and says where it ends. None when the end cannot be reached because somebody writes.
pub async fn reach_end<L, F: Future<Output = Result<L, Error>>>(
    standby: &mut Standby,
    kept: &Kept,
    reader: &dyn Reader,
    open: impl Fn() -> F,
    end: impl Fn(&mut L) -> (Position, Option<Link>),
) -> Result<Option<L>, StartError> {
    for _ in 0..MAX_ATTEMPTS {
        standby.apply_received(kept)?;
        standby.catch_up(reader)?;
        let mut ledger = open().await?;
        standby.catch_up(reader)?;
        let (next, link) = end(&mut ledger);
        if standby.is_at(next, link) {
            return Ok(Some(ledger));
        }
    }
    Ok(None)
}
