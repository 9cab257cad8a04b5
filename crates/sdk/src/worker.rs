//! A worker: handlers for queues, and the loop that polls for leases, runs handlers and reports.
//!
//! On SIGTERM or SIGINT the worker drains: it takes no more tasks, gives running handlers a grace period, and releases
//! the leases that are left.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use credentials::Credentials;
use serde::Serialize;
use wire::{DEFAULT_WAIT_MS, MAX_WAIT_MS};

use crate::handler::{Handler, OnOutcome, boxed};
use crate::setters::setters;
use crate::shutdown::{Stopper, stop_on_signals};
use crate::transport::{Address, Transport};
use crate::work_loop::WorkLoop;
use crate::{Error, Failure, Outcome, Task};

const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// Handlers for queues. Defaults come from the environment: LESSOR_URL, LESSOR_TENANT, LESSOR_WORKSPACE, and those of
/// [`Credentials`].
#[must_use = "a worker does nothing until it runs"]
pub struct Worker {
    address: Address,
    pub(crate) worker_id: Option<String>,
    pub(crate) concurrency: usize,
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) wait: Duration,
    pub(crate) grace: Duration,
    handles_signals: bool,
    pub(crate) handlers: Vec<(String, Handler)>,
    pub(crate) on_outcome: Option<OnOutcome>,
    pub(crate) stopper: Stopper,
}

impl Default for Worker {
    fn default() -> Worker {
        Worker::new()
    }
}

impl Worker {
    pub fn new() -> Worker {
        Worker {
            address: Address::default(),
            worker_id: None,
            concurrency: 1,
            properties: BTreeMap::new(),
            wait: Duration::from_millis(DEFAULT_WAIT_MS),
            grace: DEFAULT_GRACE,
            handles_signals: true,
            handlers: Vec::new(),
            on_outcome: None,
            stopper: Stopper::new(),
        }
    }

    /// Makes a function the handler of a queue. It returns the task's result or its failure; a panic is a failure too.
    pub fn handler<H, F, R>(mut self, queue: impl Into<String>, handler: H) -> Worker
    where
        H: Fn(Task) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + Send + 'static,
    {
        self.handlers.push((queue.into(), boxed(handler)));
        self
    }

    setters! {
        url(url: impl Into<String>): address.url = Some(url.into());
        tenant(tenant: impl Into<String>): address.tenant = Some(tenant.into());
        workspace(workspace: impl Into<String>): address.workspace = Some(workspace.into());
        /// The CA, the client certificate and the API key; missing fields come from the environment.
        credentials(credentials: Credentials): address.credentials = credentials;
        /// A unique id; random by default.
        worker_id(worker_id: impl Into<String>): worker_id = Some(worker_id.into());
        /// How many handlers run at a time; 1 by default.
        concurrency(concurrency: usize): concurrency = concurrency;
        /// How long one poll waits for tasks.
        wait(wait: Duration): wait = wait.min(Duration::from_millis(MAX_WAIT_MS));
        /// How long running handlers may take to end when the worker stops.
        grace(grace: Duration): grace = grace;
        /// Calls a hook with the outcome of each attempt.
        on_outcome(hook: impl Fn(&Task, &Outcome) + Send + Sync + 'static): on_outcome = Some(Arc::new(hook));
    }

    /// A property that tasks may require.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Worker {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// Leaves signals to the program, which stops the worker by its stopper.
    pub fn without_signals(mut self) -> Worker {
        self.handles_signals = false;
        self
    }

    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Runs until SIGTERM, SIGINT or its stopper.
    pub async fn run(self) -> Result<(), Error> {
        let transport = Transport::new(&self.address)?;
        let stopper = self.stopper.clone();
        let signals: Pin<Box<dyn Future<Output = ()> + Send>> = if self.handles_signals {
            Box::pin(stop_on_signals(stopper)?)
        } else {
            Box::pin(std::future::pending())
        };
        let work = WorkLoop::new(self, transport)?;
        tokio::select! {
            ended = work.run() => ended,
            () = signals => Ok(()),
        }
    }
}
