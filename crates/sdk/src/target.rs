//! A push target: takes the tasks that the coordinator sends, runs their handlers and calls the coordinator back.
//!
//! It is independent of the HTTP server. The program passes the headers and the body of each POST, and answers with the
//! returned status; the task runs in the background.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::watch;
use wire::TaskEnvelope;

use crate::attempt::{Attempt, release_all};
use crate::callback_contract::CallbackContract;
use crate::dispatches::{Arrival, Dispatches};
use crate::handler::boxed;
use crate::lease_clock::LeaseClock;
use crate::shutdown::{Stopper, stop_on_signals};
use crate::transport::Transport;
use crate::{Accept, Error, Failure, TargetOptions, Task, clock, ids, signature};

/// Larger than the largest envelope.
pub(crate) const MAX_ENVELOPE_BYTES: usize = 4 * 1024 * 1024;
const MAX_DISPATCH_ID_BYTES: usize = 128;
/// The coordinator waits at least so long for the first call after a dispatch is accepted.
const MIN_BEGIN_WITHIN: Duration = Duration::from_secs(60);

/// An open target; a clone is the same one.
#[derive(Clone)]
pub struct Target(Arc<Inner>);

struct Inner {
    options: TargetOptions,
    worker_id: Arc<str>,
    transport: Transport,
    runtime: Handle,
    state: Mutex<State>,
    /// Whether nothing runs.
    is_idle: watch::Sender<bool>,
}

struct State {
    dispatches: Dispatches<Arc<Attempt>>,
    is_draining: bool,
}

impl Target {
    /// A target with a handler like a worker's. The handler returns the task's result or its failure; a panic is a
    /// failure too.
    pub fn with<H, F, R>(handler: H) -> TargetOptions
    where
        H: Fn(Task) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: Serialize + Send + 'static,
    {
        TargetOptions::new(boxed(handler))
    }

    pub(crate) fn open(options: TargetOptions) -> Result<Target, Error> {
        if options.concurrency == 0 {
            return Err(Error::Setup("a target runs at least one handler at a time".to_owned()));
        }
        let unscoped = Transport::unscoped(&options.credentials)?;
        let transport = match &options.callback_url {
            Some(url) => unscoped.to(url)?,
            None => unscoped,
        };
        let worker_id = ids::worker_id(&options.worker_id)?;
        let runtime = Handle::try_current()
            .map_err(|_| Error::Setup("a target is opened inside a tokio runtime".to_owned()))?;
        let state = State { dispatches: Dispatches::new(), is_draining: false };
        Ok(Target(Arc::new(Inner {
            options,
            worker_id,
            transport,
            runtime,
            state: Mutex::new(state),
            is_idle: watch::Sender::new(true),
        })))
    }

    /// Accepts or refuses a dispatch at once. Call it with the headers and the raw body of a POST. A repeated dispatch
    /// is accepted and not run again.
    pub fn accept<N, V>(&self, headers: impl IntoIterator<Item = (N, V)>, body: &[u8]) -> Accept
    where
        N: AsRef<str>,
        V: AsRef<[u8]>,
    {
        let is_signature =
            |(name, _): &(N, V)| name.as_ref().eq_ignore_ascii_case(signature::SIGNATURE_HEADER);
        let signatures = headers.into_iter().filter(is_signature).map(|(_, value)| value.as_ref().to_vec());
        self.try_accept(&signatures.collect::<Vec<_>>(), body).unwrap_or_else(|refused| {
            tracing::warn!(?refused, "a dispatch was refused");
            refused
        })
    }

    /// Runs until SIGTERM, SIGINT or its stopper. Then it accepts no more dispatches, gives running handlers their grace
    /// period, and reports the rest as failed. Keep the HTTP server running until this returns.
    pub async fn run(&self) -> Result<(), Error> {
        let stopper = self.stopper();
        if self.0.options.handles_signals {
            tokio::select! {
                () = self.drain() => {}
                () = stop_on_signals(stopper)? => {}
            }
        } else {
            self.drain().await;
        }
        Ok(())
    }

    pub fn stopper(&self) -> Stopper {
        self.0.options.stopper.clone()
    }

    fn try_accept(&self, signatures: &[Vec<u8>], body: &[u8]) -> Result<Accept, Accept> {
        if body.len() > MAX_ENVELOPE_BYTES {
            return Err(Accept::refused(413, format!("an envelope has at most {MAX_ENVELOPE_BYTES} bytes")));
        }
        self.check_signature(signatures, body)?;
        let envelope: TaskEnvelope = serde_json::from_slice(body)
            .map_err(|error| Accept::bad(format!("the envelope is invalid: {error}")))?;
        if envelope.dispatch_id.is_empty() || envelope.dispatch_id.len() > MAX_DISPATCH_ID_BYTES {
            return Err(Accept::bad("the dispatch id is empty or too long"));
        }
        let transport = match self.0.options.callback_url {
            Some(_) => self.0.transport.clone(),
            None => self
                .0
                .transport
                .to(&envelope.callback_base_url)
                .map_err(|error| Accept::bad(format!("the callback URL is invalid: {error}")))?,
        };
        self.begin(transport, envelope)
    }

    fn check_signature(&self, signatures: &[Vec<u8>], body: &[u8]) -> Result<(), Accept> {
        match signatures {
            _ if self.0.options.secrets.is_empty() => Ok(()),
            [one] => signature::verify(&self.0.options.secrets, one, body).map_err(Accept::unsigned),
            _ => Err(Accept::unsigned("a dispatch has exactly one signature")),
        }
    }

    fn begin(&self, transport: Transport, envelope: TaskEnvelope) -> Result<Accept, Accept> {
        let inner = &self.0;
        let id = envelope.dispatch_id.clone();
        let mut state = inner.state();
        match state.dispatches.arrival(&id, inner.options.concurrency) {
            Arrival::Repeat => return Ok(Accept::Accepted),
            _ if state.is_draining => return Err(Accept::refused(503, "the worker is stopping")),
            Arrival::Full => return Err(Accept::refused(429, "the target runs as many tasks as it may")),
            Arrival::New => {}
        }
        let contract = CallbackContract::new(transport, inner.worker_id.clone(), &envelope);
        let timeout = Duration::from_millis(envelope.heartbeat_timeout_ms);
        let clock = LeaseClock::pushed(timeout, timeout.max(MIN_BEGIN_WITHIN), clock::now());
        let attempt = Arc::new(Attempt::new(Box::new(contract), envelope.into(), clock));
        state.dispatches.begin(id.clone(), attempt.clone());
        inner.is_idle.send_replace(false);
        drop(state);
        let ending = Ending { target: inner.clone(), id, attempt };
        inner.runtime.spawn(async move {
            let options = &ending.target.options;
            ending.attempt.run(&options.handler, options.on_outcome.clone()).await;
        });
        Ok(Accept::Accepted)
    }

    async fn drain(&self) {
        let stopper = self.stopper();
        stopper.stop_requested().await;
        self.0.state().is_draining = true;
        tracing::info!(worker_id = &*self.0.worker_id, "the target is draining");
        let mut is_idle = self.0.is_idle.subscribe();
        tokio::select! {
            // The sender lives as long as `self`.
            _ = is_idle.wait_for(|is_idle| *is_idle) => return,
            () = stopper.immediate_stop_requested() => {}
            () = tokio::time::sleep(self.0.options.grace) => {}
        }
        let remaining: Vec<_> = self.0.state().dispatches.running().cloned().collect();
        release_all(remaining, self.0.options.on_outcome.clone()).await;
    }
}

impl Inner {
    /// No holder of the lock panics, and the state would still be consistent.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends a dispatch when its attempt ends, also by a panic of its hook.
struct Ending {
    target: Arc<Inner>,
    id: String,
    attempt: Arc<Attempt>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut state = self.target.state();
        state.dispatches.end(&self.id, self.attempt.has_begun());
        // Under the lock, so that the last value sent is the current one.
        self.target.is_idle.send_replace(state.dispatches.is_idle());
    }
}
