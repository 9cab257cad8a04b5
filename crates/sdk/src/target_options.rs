//! The options of a push target.

use std::sync::Arc;
use std::time::Duration;

use credentials::Credentials;

use crate::handler::{Handler, OnOutcome};
use crate::setters::setters;
use crate::shutdown::Stopper;
use crate::{Error, Outcome, Target, Task};

const DEFAULT_GRACE: Duration = Duration::from_secs(30);
const DEFAULT_CONCURRENCY: usize = 10;

#[must_use = "a target accepts nothing until it is open"]
pub struct TargetOptions {
    pub(crate) handler: Handler,
    pub(crate) secrets: Vec<Vec<u8>>,
    pub(crate) concurrency: usize,
    pub(crate) grace: Duration,
    pub(crate) worker_id: Option<String>,
    pub(crate) callback_url: Option<String>,
    pub(crate) credentials: Credentials,
    pub(crate) handles_signals: bool,
    pub(crate) on_outcome: Option<OnOutcome>,
    pub(crate) stopper: Stopper,
}

impl TargetOptions {
    pub(crate) fn new(handler: Handler) -> TargetOptions {
        TargetOptions {
            handler,
            secrets: Vec::new(),
            concurrency: DEFAULT_CONCURRENCY,
            grace: DEFAULT_GRACE,
            worker_id: None,
            callback_url: None,
            credentials: Credentials::default(),
            handles_signals: true,
            on_outcome: None,
            stopper: Stopper::new(),
        }
    }

    /// The queue's secret: dispatches without a valid signature are refused. During a rotation, give both secrets.
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> TargetOptions {
        self.secrets.push(secret.into());
        self
    }

    setters! {
        /// How many handlers run at a time; 10 by default, like a queue's.
        concurrency(concurrency: usize): concurrency = concurrency;
        /// How long running handlers may take to end when the target stops.
        grace(grace: Duration): grace = grace;
        /// A unique id; random by default.
        worker_id(worker_id: impl Into<String>): worker_id = Some(worker_id.into());
        /// The coordinator's URL for callbacks, instead of the one in the envelopes.
        callback_url(url: impl Into<String>): callback_url = Some(url.into());
        /// The CA and the client certificate for callbacks; missing fields come from the environment.
        credentials(credentials: Credentials): credentials = credentials;
        /// Calls a hook with the outcome of each attempt.
        on_outcome(hook: impl Fn(&Task, &Outcome) + Send + Sync + 'static): on_outcome = Some(Arc::new(hook));
    }

    /// Leaves signals to the program, which stops the target by its stopper.
    pub fn without_signals(mut self) -> TargetOptions {
        self.handles_signals = false;
        self
    }

    /// Opens the target. Call it inside the tokio runtime in which the handlers should run.
    pub fn open(self) -> Result<Target, Error> {
        Target::open(self)
    }
}
