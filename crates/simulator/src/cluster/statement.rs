//! The statements of a node on their way to the database and back, as futures that are polled by hand.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use authority::Position;
use ledger::postgres::{BatchRow, BatchTable, End, Error, Inserted, Place};

use super::NodeId;

/// What a node asks of the database.
#[derive(Clone)]
pub(crate) enum Statement {
    Connect,
    Insert { before: Place, row: BatchRow },
    Stored { from: Position, limit: usize },
    End { last: Place },
    Commit,
    Last,
    Pause { ms: u64 },
}

/// What the database answers. None stands for a lost connection.
#[derive(Clone)]
pub(crate) enum Outcome {
    Connected(u64),
    Inserted(Inserted),
    Places(Vec<Place>),
    End(End),
    Committed { is_warned: bool },
    Done,
}

/// A statement that was sent and not taken up by the world yet.
pub(crate) struct Sent {
    pub id: u64,
    pub node: NodeId,
    pub life: u64,
    pub session: u64,
    pub statement: Statement,
}

/// Both ends of all connections to the database.
#[derive(Default)]
pub(crate) struct Pipe {
    next: u64,
    pub sent: Vec<Sent>,
    answers: BTreeMap<u64, Option<Outcome>>,
}

impl Pipe {
    /// The answer has arrived.
    pub(crate) fn answer(&mut self, id: u64, outcome: Option<Outcome>) {
        self.answers.insert(id, outcome);
    }
}

/// The table of batches, as one life of a node reaches it.
#[derive(Clone)]
pub(crate) struct Table {
    pub pipe: Rc<RefCell<Pipe>>,
    pub node: NodeId,
    pub life: u64,
}

impl Table {
    async fn ask(&self, session: u64, statement: Statement) -> Result<Outcome, Error> {
        let id = {
            let mut pipe = self.pipe.borrow_mut();
            pipe.next += 1;
            let (id, node, life) = (pipe.next, self.node, self.life);
            pipe.sent.push(Sent { id, node, life, session, statement });
            id
        };
        let answer = poll_fn(|_| match self.pipe.borrow_mut().answers.remove(&id) {
            Some(answer) => Poll::Ready(answer),
            None => Poll::Pending,
        });
        answer.await.ok_or(Error::Silent)
    }

    /// The last batch that the database holds.
    pub(crate) async fn last(&self) -> Result<Place, Error> {
        let session = self.connect().await?;
        match self.ask(session, Statement::Last).await? {
            Outcome::Places(places) => places.first().copied().ok_or(Error::Closed),
            _ => Err(Error::Closed),
        }
    }
}

impl BatchTable for Table {
    type Session = u64;

    async fn connect(&self) -> Result<u64, Error> {
        match self.ask(0, Statement::Connect).await? {
            Outcome::Connected(session) => Ok(session),
            _ => Err(Error::Closed),
        }
    }

    async fn insert(&self, session: &u64, before: Place, row: &BatchRow) -> Result<Inserted, Error> {
        match self.ask(*session, Statement::Insert { before, row: row.clone() }).await? {
            Outcome::Inserted(inserted) => Ok(inserted),
            _ => Err(Error::Closed),
        }
    }

    async fn stored(&self, session: &u64, from: Position, limit: usize) -> Result<Vec<Place>, Error> {
        match self.ask(*session, Statement::Stored { from, limit }).await? {
            Outcome::Places(places) => Ok(places),
            _ => Err(Error::Closed),
        }
    }

    async fn end(&self, session: &u64, last: Place) -> Result<End, Error> {
        match self.ask(*session, Statement::End { last }).await? {
            Outcome::End(end) => Ok(end),
            _ => Err(Error::Closed),
        }
    }

    async fn commit(&self, session: &u64) -> Result<bool, Error> {
        match self.ask(*session, Statement::Commit).await? {
            Outcome::Committed { is_warned } => Ok(is_warned),
            _ => Err(Error::Closed),
        }
    }

    async fn pause(&self, pause: Duration) {
        let _ = self.ask(0, Statement::Pause { ms: pause.as_millis() as u64 }).await;
    }
}
