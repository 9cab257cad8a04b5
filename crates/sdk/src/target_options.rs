//! How a push target is set up.

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
    pub(crate) hears_signals: bool,
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
            hears_signals: true,
            on_outcome: None,
            stopper: Stopper::new(),
        }
    }

    /// The queue's secret: from then on a dispatch that is not signed with it is refused. While a secret is replaced,
    /// both may be given.
    pub fn secret(mut self, secret: impl Into<Vec<u8>>) -> TargetOptions {
        self.secrets.push(secret.into());
        self
    }

    /// How many handlers run at a time; 10 when left out, like a queue's.
    pub fn concurrency(mut self, concurrency: usize) -> TargetOptions {
        self.concurrency = concurrency;
        self
    }

    /// How long running handlers may take to end when the target stops.
    pub fn grace(mut self, grace: Duration) -> TargetOptions {
        self.grace = grace;
        self
    }

    /// A name of its own; a random one when left out.
    pub fn worker_id(mut self, worker_id: impl Into<String>) -> TargetOptions {
        self.worker_id = Some(worker_id.into());
        self
    }

    /// Where the coordinator is called back, whatever the envelopes say.
    pub fn callback_url(mut self, url: impl Into<String>) -> TargetOptions {
        self.callback_url = Some(url.into());
        self
    }

    /// Leaves signals to the program; then its stopper stops the target.
    pub fn without_signals(mut self) -> TargetOptions {
        self.hears_signals = false;
        self
    }

    /// Is told how each attempt ended.
    pub fn on_outcome(mut self, hook: impl Fn(&Task, &Outcome) + Send + Sync + 'static) -> TargetOptions {
        self.on_outcome = Some(Arc::new(hook));
        self
    }

    /// Opens the target, inside a tokio runtime, in which the handlers run.
    pub fn open(self) -> Result<Target, Error> {
        Target::open(self)
    }
}
