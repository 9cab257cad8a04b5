//! The table of batches, as a writer uses it: the few operations of a database that the append protocol rests on.

use std::future::Future;
use std::time::Duration;

use super::Error;
use super::batch_row::{BatchRow, Place};
use crate::Position;

/// What became of an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The row is committed. After a warning it may not be replicated.
    Stored { is_warned: bool },
    /// The row before it is not there.
    NotBehind,
    /// Another row has its position.
    Taken,
}

/// What a confirmation rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Whether the given batch is there, and is the last one.
    pub is_last: bool,
    /// Whether commits wait for replicas.
    pub has_replicas: bool,
}

/// An error of any operation says nothing about its outcome.
pub trait BatchTable {
    /// A connection, with what was prepared on it. Statements of one session are executed in order.
    type Session;

    fn connect(&self) -> impl Future<Output = Result<Self::Session, Error>>;

    /// Inserts a row behind the row `before`, in one statement and one transaction.
    fn insert(
        &self,
        session: &Self::Session,
        before: Place,
        row: &BatchRow,
    ) -> impl Future<Output = Result<Inserted, Error>>;

    /// The places from a position on, in order, at most `limit`.
    fn stored(
        &self,
        session: &Self::Session,
        from: Position,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Place>, Error>>;

    fn end(&self, session: &Self::Session, last: Place) -> impl Future<Output = Result<End, Error>>;

    /// Commits something of no meaning, and says whether the server has warned. Without a warning everything that was committed
    /// before is as durable as the server promises.
    fn commit(&self, session: &Self::Session) -> impl Future<Output = Result<bool, Error>>;

    /// Waits.
    fn pause(&self, pause: Duration) -> impl Future<Output = ()>;
}
