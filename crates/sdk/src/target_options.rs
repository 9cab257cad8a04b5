//! The options of a push target.

use std::sync::Arc;
use std::time::Duration;

use crate::handler::{Handler, OnOutcome};
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

    /// How many handlers run at a time; 10 by default, like a queue's.
    pub fn concurrency(mut self, concurrency: usize) -> TargetOptions {
        self.concurrency = concurrency;
        self
    }

    /// How long running handlers may take to end when the target stops.
    pub fn grace(mut self, grace: Duration) -> TargetOptions {
        self.grace = grace;
        self
    }

    /// A unique id; random by default.
    pub fn worker_id(mut self, worker_id: impl Into<String>) -> TargetOptions {
        self.worker_id = Some(worker_id.into());
        self
    }

    /// The coordinator's URL for callbacks, instead of the one in the envelopes.
    pub fn callback_url(mut self, url: impl Into<String>) -> TargetOptions {
        self.callback_url = Some(url.into());
        self
    }

    /// Leaves signals to the program, which stops the target by its stopper.
    pub fn without_signals(mut self) -> TargetOptions {
        self.handles_signals = false;
        self
    }

    /// Calls a hook with the outcome of each attempt.
    pub fn on_outcome(mut self, hook: impl Fn(&Task, &Outcome) + Send + Sync + 'static) -> TargetOptions {
        self.on_outcome = Some(Arc::new(hook));
        self
    }

    /// Opens the target. Call it inside the tokio runtime in which the handlers should run.
    pub fn open(self) -> Result<Target, Error> {
        Target::open(self)
    }
}
