//! What differs between the contracts that an attempt may be spoken of in: the words, and nothing about when they are
//! said.

use std::time::Duration;

use jiff::Timestamp;
use wire::Json;

use crate::task::Told;
use crate::transport::{Answer, Request, Transport};
use crate::{Error, Failure, Metrics, Outcome};

/// One attempt, as its contract speaks of it.
pub trait Contract: Send + Sync {
    fn transport(&self) -> &Transport;

    /// What has to be said, and agreed to, before the work may begin.
    fn opening(&self) -> Result<Option<Request>, Error>;

    fn may_begin(&self, answer: &Answer) -> Result<(), Error>;

    fn heartbeat(&self, progress: Option<Told>) -> Result<Request, Error>;

    fn heard(&self, answer: &Answer) -> Heard;

    fn report(&self, ended: Result<Json, Failure>, metrics: Option<Metrics>) -> Result<Request, Error>;

    fn verdict(&self, answer: &Answer) -> Outcome;

    /// What is said of an attempt that its worker does not end.
    fn giving_back(&self) -> Result<Request, Error>;

    fn given_back(&self, answer: &Answer) -> Outcome;
}

/// What the answer to a heartbeat says.
#[derive(Debug)]
pub enum Heard {
    Lives {
        /// Where the contract tells it.
        expires_at: Option<Timestamp>,
        stop: Option<Stop>,
    },
    /// The right to report is gone.
    Over(String),
    /// Somebody else answered.
    Foreign(Error),
}

/// The handler should stop.
#[derive(Debug)]
pub struct Stop {
    pub reason: String,
    /// How long it has at most, where the contract tells it.
    pub grace: Option<Duration>,
}

impl Stop {
    pub fn told(should_cancel: bool, reason: Option<String>, grace: Option<Duration>) -> Option<Stop> {
        should_cancel.then(|| Stop { reason: reason.unwrap_or_else(|| "cancelled".to_owned()), grace })
    }
}
