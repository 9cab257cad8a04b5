//! The messages of an attempt, which differ between the lease contract and the callback contract. When they are sent
//! does not differ.

use std::time::Duration;

use jiff::Timestamp;
use wire::Json;

use crate::task::Progress;
use crate::transport::{Answer, Request, Transport};
use crate::{Error, Failure, Metrics, Outcome};

/// The messages of one attempt.
pub(crate) trait Contract: Send + Sync {
    fn transport(&self) -> &Transport;

    /// The request that the coordinator must accept before the work may begin, if the contract has one.
    fn start(&self) -> Result<Option<Request>, Error> {
        Ok(None)
    }

    fn parse_start_answer(&self, _answer: &Answer) -> Result<(), Error> {
        Ok(())
    }

    fn heartbeat(&self, progress: Option<Progress>) -> Result<Request, Error>;

    fn parse_heartbeat_answer(&self, answer: &Answer) -> LeaseAnswer;

    fn report(&self, result: Result<Json, Failure>, metrics: Option<Metrics>) -> Result<Request, Error>;

    fn parse_verdict(&self, answer: &Answer) -> Outcome;

    /// The request that gives up an attempt which its worker does not finish.
    fn release(&self) -> Result<Request, Error>;

    fn parse_release_answer(&self, answer: &Answer) -> Outcome;
}

/// The answer to a heartbeat.
#[derive(Debug)]
pub(crate) enum LeaseAnswer {
    Live {
        /// If the contract says so.
        expires_at: Option<Timestamp>,
        cancel: Option<Cancel>,
    },
    /// The right to report is gone.
    Over(String),
    /// Another server answered.
    Foreign(Error),
}

/// The coordinator asks the handler to stop.
#[derive(Debug)]
pub(crate) struct Cancel {
    pub reason: String,
    /// How long the handler has to stop, if the contract limits it.
    pub grace: Option<Duration>,
}

impl Cancel {
    pub(crate) fn new(
        should_cancel: bool,
        reason: Option<String>,
        grace: Option<Duration>,
    ) -> Option<Cancel> {
        should_cancel.then(|| Cancel { reason: reason.unwrap_or_else(|| "cancelled".to_owned()), grace })
    }
}
