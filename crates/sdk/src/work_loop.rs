//! The loop of a worker: ask, run, report, obey; and in the end, drain.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use wire::{DEFAULT_WAIT_MS, Lease, LeaseTasks, Leases};

use crate::attempt::{Attempt, RELEASE_TIMEOUT, give_back};
use crate::handler::Handler;
use crate::lease_clock::LeaseClock;
use crate::lease_contract::LeaseContract;
use crate::poll::Poll;
use crate::backoff::Backoff;
use crate::transport::{ANSWER_TIMEOUT, Fault, Transport};
use crate::worker::Worker;
use crate::{Error, clock, key};

/// Most leases that one poll brings.
const MAX_POLL_TASKS: usize = 100;

/// A worker at work: everything happens in one task, but for the attempts themselves.
pub struct WorkLoop {
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
    pub fn new(worker: Worker, transport: Transport) -> Result<WorkLoop, Error> {
        let queues: Vec<String> = worker.handlers.iter().map(|(queue, _)| queue.clone()).collect();
        let handlers: HashMap<String, Handler> = worker.handlers.iter().cloned().collect();
        if handlers.is_empty() || handlers.len() != queues.len() {
            return Err(Error::Setup("a worker needs a handler, and a queue has one at most".to_owned()));
        }
        if worker.concurrency == 0 {
            return Err(Error::Setup("a worker runs at least one handler at a time".to_owned()));
        }
        let worker_id = match &worker.worker_id {
            Some(worker_id) => worker_id.clone(),
            None => key::worker_id()?,
        };
        let poll = Poll::new(LeaseTasks {
            worker_id: worker_id.clone(),
            queues,
            wait_ms: Some(worker.wait.as_millis() as u64),
            properties: (!worker.properties.is_empty()).then(|| worker.properties.clone()),
            ..LeaseTasks::default()
        });
        Ok(WorkLoop {
            worker,
            transport,
            worker_id: worker_id.into(),
            handlers,
            poll,
            backoff: Backoff::new(),
            attempts: JoinSet::new(),
            running: HashMap::new(),
        })
    }

    pub async fn run(mut self) -> Result<(), Error> {
        let queues: Vec<&str> = self.handlers.keys().map(String::as_str).collect();
        tracing::info!(worker_id = &*self.worker_id, ?queues, "works");
        let stopper = self.worker.stopper.clone();
        let told = stopper.told(1);
        tokio::pin!(told);
        let mut polling: Option<Polling> = None;
        let mut pause = Duration::ZERO;
        // The coordinator's no to a poll, which no repeat will change, ends the worker too.
        let ended = loop {
            let room = self.worker.concurrency.saturating_sub(self.running.len());
            if polling.is_none() && room > 0 {
                match self.poll.next(room.min(MAX_POLL_TASKS)) {
                    Ok(request) => {
                        polling = Some(ask(self.transport.clone(), request, pause, ANSWER_TIMEOUT));
                    }
                    Err(error) => break Err(error),
                }
            }
            tokio::select! {
                () = &mut told => break Ok(()),
                asked = async { polling.as_mut().expect("it is polled only when there is one").await },
                    if polling.is_some() =>
                {
                    polling = None;
                    match asked {
                        Ok(Ok(leases)) => pause = self.heard(leases.leases).await,
                        Ok(Err(error)) => break Err(error),
                        Err(fault) => pause = self.faulted(&fault),
                    }
                }
                Some(ended) = self.attempts.join_next(), if !self.attempts.is_empty() => self.forget(ended),
            }
        };
        // Whoever waits in the poll is hung up on, and asked afterwards what it was granted.
        drop(polling);
        self.drain().await;
        ended
    }

    async fn heard(&mut self, leases: Vec<Lease>) -> Duration {
        let asked_at = self.poll.answered();
        self.backoff = Backoff::new();
        for lease in leases {
            self.begin(lease, asked_at).await;
        }
        Duration::ZERO
    }

    fn faulted(&mut self, fault: &Fault) -> Duration {
        if let Some(pause) = self.backoff.after(fault.retry_after) {
            tracing::warn!(why = fault.why, "a poll got no answer and is repeated");
            return pause;
        }
        // A worker outlives any outage; the pauses begin anew, and the log says so.
        tracing::error!(url = self.transport.url(), why = fault.why, "nobody can be asked for work");
        self.backoff = Backoff::new();
        self.backoff.after(fault.retry_after).unwrap_or_default()
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
            attempt.work(&handler, hook).await;
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
        let clock = LeaseClock::new(&lease, asked_at, clock::now());
        Attempt::new(Box::new(contract), lease.into(), clock)
    }

    /// An attempt has ended. One that panicked, in a hook, cannot say which it was; then those that are done are found.
    fn forget(&mut self, ended: Result<String, tokio::task::JoinError>) {
        match ended {
            Ok(lease_id) => drop(self.running.remove(&lease_id)),
            Err(error) => {
                tracing::error!(%error, "an attempt ended in a panic of its hook");
                self.running.retain(|_, attempt| Arc::strong_count(attempt) > 1);
            }
        }
    }

    async fn drain(&mut self) {
        tracing::info!(worker_id = &*self.worker_id, running = self.running.len(), "stops");
        let end = clock::now() + self.worker.grace;
        let stopper = self.worker.stopper.clone();
        let at_once = stopper.told(2);
        tokio::pin!(at_once);
        self.give_back_leftovers().await;
        loop {
            tokio::select! {
                ended = self.attempts.join_next() => match ended {
                    Some(ended) => self.forget(ended),
                    None => return,
                },
                () = &mut at_once => break,
                () = tokio::time::sleep(clock::until(end)) => break,
            }
        }
        let left = std::mem::take(&mut self.running).into_values();
        give_back(left, self.worker.on_outcome.clone()).await;
    }

    /// The poll that was ended may have been granted leases that nobody heard of.
    async fn give_back_leftovers(&mut self) {
        let Some(request) = self.poll.leftover() else { return };
        let asked = ask(self.transport.clone(), request, Duration::ZERO, RELEASE_TIMEOUT).await;
        if let Ok(Ok(found)) = asked {
            for lease in found.leases {
                let attempt = self.attempt(lease, clock::now());
                attempt.release("the worker is stopping", RELEASE_TIMEOUT).await;
            }
        }
    }
}

/// One try at a poll: a fault, or the coordinator's answer.
type Polling = Pin<Box<dyn Future<Output = Result<Result<Leases, Error>, Fault>> + Send>>;

fn ask(transport: Transport, request: LeaseTasks, pause: Duration, answer_timeout: Duration) -> Polling {
    Box::pin(async move {
        tokio::time::sleep(pause).await;
        let wait = Duration::from_millis(request.wait_ms.unwrap_or(DEFAULT_WAIT_MS));
        let request = match transport.post(&["leases"], &request) {
            Ok(request) => request,
            Err(error) => return Ok(Err(error)),
        };
        let answer = transport.once(&request, wait + answer_timeout).await?;
        Ok(answer.read())
    })
}
