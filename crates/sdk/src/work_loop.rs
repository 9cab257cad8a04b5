//! The worker's loop: polls for leases, runs their attempts and drains at the end.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use wire::{DEFAULT_WAIT_MS, Lease, LeaseTasks, Leases};

use crate::attempt::{Attempt, RELEASE_TIMEOUT, release_all};
use crate::backoff::Backoff;
use crate::handler::Handler;
use crate::lease_clock::LeaseClock;
use crate::lease_contract::LeaseContract;
use crate::poll::Poll;
use crate::transport::{ANSWER_TIMEOUT, Fault, Transport};
use crate::worker::Worker;
use crate::{Error, clock, ids};

/// Most leases that one poll brings.
const MAX_POLL_TASKS: usize = 100;

/// A running worker. Everything but the attempts happens in one tokio task.
pub(crate) struct WorkLoop {
    worker: Worker,
    transport: Transport,
    worker_id: Arc<str>,
    handlers: HashMap<String, Handler>,
    poll: Poll,
    backoff: Backoff,
    attempts: JoinSet<String>,
    running: HashMap<String, Arc<Attempt>>,
}

impl WorkLoop {
    pub(crate) fn new(worker: Worker, transport: Transport) -> Result<WorkLoop, Error> {
        let queues: Vec<String> = worker.handlers.iter().map(|(queue, _)| queue.clone()).collect();
        let handlers: HashMap<String, Handler> = worker.handlers.iter().cloned().collect();
        if handlers.is_empty() || handlers.len() != queues.len() {
            return Err(Error::Setup(
                "a worker needs at least one handler, and at most one for each queue".to_owned(),
            ));
        }
        if worker.concurrency == 0 {
            return Err(Error::Setup("a worker runs at least one handler at a time".to_owned()));
        }
        let worker_id = ids::worker_id(&worker.worker_id)?;
        let poll = Poll::new(LeaseTasks {
            worker_id: worker_id.to_string(),
            queues,
            wait_ms: Some(worker.wait.as_millis() as u64),
            properties: (!worker.properties.is_empty()).then(|| worker.properties.clone()),
            ..LeaseTasks::default()
        });
        Ok(WorkLoop {
            worker,
            transport,
            worker_id,
            handlers,
            poll,
            backoff: Backoff::limited(),
            attempts: JoinSet::new(),
            running: HashMap::new(),
        })
    }

    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let queues: Vec<&str> = self.handlers.keys().map(String::as_str).collect();
        tracing::info!(worker_id = &*self.worker_id, ?queues, "the worker has started");
        let stopper = self.worker.stopper.clone();
        let stop_requested = stopper.stop_requested();
        tokio::pin!(stop_requested);
        let mut polling: Option<Polling> = None;
        let mut delay = Duration::ZERO;
        // A poll that the coordinator refuses ends the worker too: no retry would change that.
        let ended = loop {
            let free = self.worker.concurrency.saturating_sub(self.running.len());
            if polling.is_none() && free > 0 {
                match self.poll.next(free.min(MAX_POLL_TASKS)) {
                    Ok(request) => {
                        polling = Some(send_poll(self.transport.clone(), request, delay, ANSWER_TIMEOUT));
                    }
                    Err(error) => break Err(error),
                }
            }
            tokio::select! {
                () = &mut stop_requested => break Ok(()),
                answered = async { polling.as_mut().expect("guarded by the condition below").await },
                    if polling.is_some() =>
                {
                    polling = None;
                    match answered {
                        Ok(Ok(leases)) => {
                            self.on_leases(leases.leases).await;
                            delay = Duration::ZERO;
                        }
                        Ok(Err(error)) => break Err(error),
                        Err(fault) => delay = self.on_fault(&fault),
                    }
                }
                Some(ended) = self.attempts.join_next(), if !self.attempts.is_empty() => self.remove(ended),
            }
        };
        // The open poll is dropped. `release_undelivered` asks what it was granted.
        drop(polling);
        self.drain().await;
        ended
    }

    async fn on_leases(&mut self, leases: Vec<Lease>) {
        let asked_at = self.poll.answered();
        self.backoff = Backoff::limited();
        for lease in leases {
            self.begin(lease, asked_at).await;
        }
    }

    /// The delay before the poll is repeated.
    fn on_fault(&mut self, fault: &Fault) -> Duration {
        if let Some(delay) = self.backoff.next_delay(fault.retry_after) {
            tracing::warn!(why = fault.why, "a poll got no answer and is repeated");
            return delay;
        }
        // A worker outlives any outage: the backoff starts again, and the log says so.
        tracing::error!(url = self.transport.url(), why = fault.why, "the coordinator does not answer");
        self.backoff = Backoff::limited();
        self.backoff.next_delay(fault.retry_after).unwrap_or_default()
    }

    async fn begin(&mut self, lease: Lease, asked_at: Duration) {
        if self.running.contains_key(&lease.lease_id) {
            return;
        }
        let handler = self.handlers.get(&lease.queue).cloned();
        let attempt = Arc::new(self.attempt(lease, asked_at));
        let Some(handler) = handler else {
            attempt.release("the worker has no handler for this queue", RELEASE_TIMEOUT).await;
            return;
        };
        self.running.insert(attempt.task.lease_id().to_owned(), attempt.clone());
        let hook = self.worker.on_outcome.clone();
        self.attempts.spawn(async move {
            attempt.run(&handler, hook).await;
            attempt.task.lease_id().to_owned()
        });
    }

    fn attempt(&self, lease: Lease, asked_at: Duration) -> Attempt {
        let contract = LeaseContract {
            transport: self.transport.clone(),
            worker_id: self.worker_id.clone(),
            lease_id: lease.lease_id.clone(),
            task_id: lease.task_id.clone(),
        };
        let clock = LeaseClock::polled(&lease, asked_at, clock::now());
        Attempt::new(Box::new(contract), lease.into(), clock)
    }

    /// Removes an attempt that has ended. One that panicked in its hook does not say its id; then all ended ones are
    /// removed.
    fn remove(&mut self, ended: Result<String, tokio::task::JoinError>) {
        match ended {
            Ok(lease_id) => drop(self.running.remove(&lease_id)),
            Err(error) => {
                tracing::error!(%error, "the outcome hook of an attempt panicked");
                self.running.retain(|_, attempt| Arc::strong_count(attempt) > 1);
            }
        }
    }

    async fn drain(&mut self) {
        tracing::info!(worker_id = &*self.worker_id, running = self.running.len(), "the worker is draining");
        let end = clock::now() + self.worker.grace;
        let stopper = self.worker.stopper.clone();
        let immediate_stop = stopper.immediate_stop_requested();
        tokio::pin!(immediate_stop);
        self.release_undelivered().await;
        loop {
            tokio::select! {
                ended = self.attempts.join_next() => match ended {
                    Some(ended) => self.remove(ended),
                    None => return,
                },
                () = &mut immediate_stop => break,
                () = tokio::time::sleep(clock::until(end)) => break,
            }
        }
        let remaining = std::mem::take(&mut self.running).into_values();
        release_all(remaining, self.worker.on_outcome.clone()).await;
    }

    /// Releases the leases that were granted to the dropped poll.
    async fn release_undelivered(&mut self) {
        let Some(request) = self.poll.take_unanswered() else { return };
        let answered = send_poll(self.transport.clone(), request, Duration::ZERO, RELEASE_TIMEOUT).await;
        if let Ok(Ok(found)) = answered {
            for lease in found.leases {
                let attempt = self.attempt(lease, clock::now());
                attempt.release("the worker is stopping", RELEASE_TIMEOUT).await;
            }
        }
    }
}

/// One try at a poll: a fault, or the coordinator's answer.
type Polling = Pin<Box<dyn Future<Output = Result<Result<Leases, Error>, Fault>> + Send>>;

fn send_poll(
    transport: Transport,
    request: LeaseTasks,
    delay: Duration,
    answer_timeout: Duration,
) -> Polling {
    Box::pin(async move {
        tokio::time::sleep(delay).await;
        let wait = Duration::from_millis(request.wait_ms.unwrap_or(DEFAULT_WAIT_MS));
        let request = match transport.post(&["leases"], &request) {
            Ok(request) => request,
            Err(error) => return Ok(Err(error)),
        };
        let answer = transport.try_once(&request, wait + answer_timeout).await?;
        Ok(answer.parse())
    })
}
