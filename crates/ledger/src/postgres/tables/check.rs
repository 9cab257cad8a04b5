//! A look at the tables after the first batch that came with its rows: a failover may have undone alone what was written before it, and
//! nothing else would notice.

use authority::Position;

use super::follow::tables_position;
use crate::postgres::Database;
use crate::postgres::shared::Pending;

pub(in crate::postgres) struct Check {
    /// The tables have held every record up to here.
    up_to: Position,
    found: Pending<(Position, Position)>,
}

impl Check {
    /// Waits for nothing.
    pub(in crate::postgres) fn begin(database: &Database, up_to: Position) -> Check {
        let shard = database.shard();
        Check { up_to, found: database.begin(move |session| tables_position(session, shard)) }
    }

    /// Whether the tables lack something, once it is known.
    pub(in crate::postgres) fn finds_loss(&mut self, database: &Database) -> Option<bool> {
        match self.found.take()? {
            Ok((position, _)) => Some(position < self.up_to),
            Err(_) => {
                *self = Check::begin(database, self.up_to);
                None
            }
        }
    }
}
