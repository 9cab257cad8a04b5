//! A worker: handlers for queues, and the loop that keeps the contract with the coordinator for them.
//!
//! Ask for leases, run the handlers, report, and obey the answer. On SIGTERM or SIGINT no more is asked for; running
//! handlers get some time to end, and what is left then is given back.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use wire::{DEFAULT_WAIT_MS, MAX_WAIT_MS};

use crate::handler::{Handler, OnOutcome, boxed};
use crate::shutdown::{Stopper, stop_on_signals};
use crate::transport::{Address, Transport};
use crate::work_loop::WorkLoop;
use crate::{Error, Failure, Outcome, Task};

const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// Handlers for queues. What is not set here comes from the environment: LESSOR_URL, LESSOR_TENANT, LESSOR_WORKSPACE.
#[must_use = "a worker does nothing until it runs"]
pub struct Worker {
    address: Address,
    pub(crate) worker_id: Option<String>,
    pub(crate) concurrency: usize,
    pub(crate) properties: BTreeMap<String, String>,
    pub(crate) wait: Duration,
    pub(crate) grace: Duration,
    hears_signals: bool,
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
            hears_signals: true,
            handlers: Vec::new(),
            on_outcome: None,
            stopper: Stopper::new(),
        }
    }

    /// Makes a function the handler of a queue. What it returns is the task's result, or its failure; a panic is a
    /// failure too.
    pub fn handler<H, F, R>(mut self, queue: impl Into<String>, handler: H) -> Worker
    where
        H: Fn(Task) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + Send + 'static,
    {
        self.handlers.push((queue.into(), boxed(handler)));
        self
    }

    pub fn url(mut self, url: impl Into<String>) -> Worker {
        self.address.url = Some(url.into());
        self
    }

    pub fn tenant(mut self, tenant: impl Into<String>) -> Worker {
        self.address.tenant = Some(tenant.into());
        self
    }

    pub fn workspace(mut self, workspace: impl Into<String>) -> Worker {
        self.address.workspace = Some(workspace.into());
        self
    }

    /// A name of its own; a random one when left out.
    pub fn worker_id(mut self, worker_id: impl Into<String>) -> Worker {
        self.worker_id = Some(worker_id.into());
        self
    }

    /// How many handlers run at a time; 1 when left out.
    pub fn concurrency(mut self, concurrency: usize) -> Worker {
        self.concurrency = concurrency;
        self
    }

    /// What the worker offers to tasks that ask for it.
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Worker {
        self.properties.insert(name.into(), value.into());
        self
    }

    /// How long one poll waits for work.
    pub fn wait(mut self, wait: Duration) -> Worker {
        self.wait = wait.min(Duration::from_millis(MAX_WAIT_MS));
        self
    }

    /// How long running handlers may take to end when the worker stops.
    pub fn grace(mut self, grace: Duration) -> Worker {
        self.grace = grace;
        self
    }

    /// Leaves signals to the program; then its stopper stops the worker.
    pub fn without_signals(mut self) -> Worker {
        self.hears_signals = false;
        self
    }

    /// Is told how each attempt ended.
    pub fn on_outcome(mut self, hook: impl Fn(&Task, &Outcome) + Send + Sync + 'static) -> Worker {
        self.on_outcome = Some(Arc::new(hook));
        self
    }

    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Works until it is told to stop, by SIGTERM, SIGINT or its stopper.
    pub async fn run(self) -> Result<(), Error> {
        let transport = Transport::new(&self.address)?;
        let stopper = self.stopper.clone();
        let signals: Pin<Box<dyn Future<Output = ()> + Send>> = if self.hears_signals {
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
