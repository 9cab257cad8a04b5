//! One lease from its arrival to the coordinator's verdict.
//!
//! The handler runs, heartbeats keep the lease while it does, and how it ended is reported: once, repeated with the
//! same words only where a fault lay on the way, and never after the lease is lost.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinError, JoinHandle, JoinSet};
use tracing::Instrument;
use wire::Json;

use crate::assignment::Assignment;
use crate::contract::Contract;
use crate::handler::{Handler, OnOutcome};
use crate::heartbeater::Heartbeater;
use crate::lease_clock::LeaseClock;
use crate::transport::ANSWER_TIMEOUT;
use crate::{Error, Failure, Outcome, Task, clock};

/// How long a handler may take to stop once its lease is lost. Then it is dropped where it waits.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How long giving one lease back may take.
pub const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

pub struct Attempt {
    contract: Box<dyn Contract>,
    pub task: Task,
    /// Whether somebody has the word: whoever gets it may speak to the coordinator about how the attempt ended.
    is_spoken_for: AtomicBool,
    has_begun: AtomicBool,
}

/// Why the work did not begin, or did not end, under its lease.
enum Ended {
    By(Result<Json, Failure>),
    /// Nobody said whether it may begin.
    Unopened(Error),
    Lost,
}

impl Attempt {
    pub fn new(contract: Box<dyn Contract>, assignment: Assignment, clock: LeaseClock) -> Attempt {
        Attempt {
            contract,
            task: Task::new(assignment, clock),
            is_spoken_for: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
        }
    }

    /// To the end, and whoever wants to know is told it.
    pub async fn work(&self, handler: &Handler, hook: Option<OnOutcome>) {
        let task = &self.task;
        let span =
            tracing::info_span!("task", id = task.id(), attempt = task.attempt(), queue = task.queue());
        if let (Some(outcome), Some(hook)) = (self.run(handler).instrument(span).await, hook) {
            hook(task, &outcome);
        }
    }

    /// Whether the handler was called.
    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// Nothing when the lease was given back meanwhile.
    async fn run(&self, handler: &Handler) -> Option<Outcome> {
        let heartbeater = Heartbeater { contract: &*self.contract, task: &self.task };
        let ended = match self.open(&heartbeater).await {
            Ok(true) => self.execute(handler, &heartbeater).await,
            Ok(false) => Ended::Lost,
            Err(error) => Ended::Unopened(error),
        };
        if !self.take_word() {
            return None;
        }
        match ended {
            Ended::By(ended) if !self.task.is_lease_lost() => Some(self.report(ended).await),
            Ended::Unopened(error) => {
                self.task.lose("the coordinator did not say that it may begin");
                tracing::error!(%error, "the attempt did not begin, because nobody answered");
                Some(Outcome::Unknown(error))
            }
            Ended::By(_) | Ended::Lost => Some(self.lost()),
        }
    }

    /// Tells the handler to stop and gives the lease back, unless the attempt is reporting already. One try: what gets
    /// lost expires by itself.
    pub async fn release(&self, reason: &str, timeout: Duration) -> Option<Outcome> {
        if !self.take_word() {
            return None;
        }
        self.task.lose(reason);
        let outcome = match self.contract.giving_back() {
            Ok(request) => match self.contract.transport().once(&request, timeout).await {
                Ok(answer) => self.contract.given_back(&answer),
                Err(fault) => {
                    let url = self.contract.transport().url().to_owned();
                    Outcome::Unknown(Error::NoAnswer { url, why: fault.why })
                }
            },
            Err(error) => Outcome::Unknown(error),
        };
        if !matches!(outcome, Outcome::Released(_) | Outcome::Committed(_)) {
            tracing::warn!(?outcome, "the lease was not given back and has to run out");
        }
        Some(outcome)
    }

    /// Whether the work may begin: the coordinator agrees where its contract wants to be asked, and the lease lives.
    async fn open(&self, heartbeater: &Heartbeater<'_>) -> Result<bool, Error> {
        if let Some(request) = self.contract.opening()? {
            let (sent_at, until) = (clock::now(), self.task.clock(|clock| clock.valid_until()));
            let answer = self.contract.transport().call(&request, ANSWER_TIMEOUT, until).await?;
            match self.contract.may_begin(&answer) {
                Ok(()) => self.task.clock(|clock| clock.begun(sent_at)),
                Err(error @ Error::Refused(_)) => {
                    self.task.lose(format!("the coordinator says that it may not begin: {error}"));
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(!self.task.clock(|clock| clock.needs_confirming()) || heartbeater.confirm().await)
    }

    /// Runs the handler with its heartbeats. When the lease is lost meanwhile, whatever it says is discarded.
    async fn execute(&self, handler: &Handler, heartbeater: &Heartbeater<'_>) -> Ended {
        self.has_begun.store(true, Ordering::Release);
        let running = handler(self.task.clone()).in_current_span();
        let mut running = AbortOnDrop(tokio::spawn(running));
        tokio::select! {
            biased;
            ended = &mut running.0 => Ended::By(ended.unwrap_or_else(|error| Err(panicked(error)))),
            () = heartbeater.run() => {
                let _ = tokio::time::timeout(STOP_GRACE, &mut running.0).await;
                Ended::Lost
            }
        }
    }

    async fn report(&self, ended: Result<Json, Failure>) -> Outcome {
        if let Err(failure) = &ended
            && failure.category() != crate::Category::Cancelled
        {
            tracing::warn!(category = ?failure.category(), reason = failure.reason(), "failed");
        }
        let until = self.task.clock(|clock| clock.valid_until());
        let answered = match self.contract.report(ended, self.task.take_metrics()) {
            Ok(request) => self.contract.transport().call(&request, ANSWER_TIMEOUT, until).await,
            Err(error) => Err(error),
        };
        let outcome = match answered {
            Ok(answer) => self.contract.verdict(&answer),
            Err(error) => {
                tracing::error!(%error, "the report was not answered while the lease lived");
                return Outcome::Unknown(error);
            }
        };
        match &outcome {
            Outcome::Committed(state) => tracing::debug!(state = state.name(), "committed"),
            Outcome::Cancelled => {
                self.task.lose("the coordinator discarded the report");
                tracing::warn!("cancelled: the lease was lost, and the result is discarded");
            }
            Outcome::Rejected(error) => {
                tracing::error!(%error, "rejected, which is a bug or a misuse of the protocol");
            }
            other => tracing::error!(outcome = ?other, "somebody else answered the report"),
        }
        outcome
    }

    fn lost(&self) -> Outcome {
        self.task.lose("the lease ran out");
        let reason = self.task.cancel_reason();
        tracing::warn!(reason, "the lease is lost, and the result is discarded");
        Outcome::Lost
    }

    fn take_word(&self) -> bool {
        !self.is_spoken_for.swap(true, Ordering::AcqRel)
    }
}

/// Gives back what is left when a worker stops, all at once.
pub async fn give_back(attempts: impl IntoIterator<Item = Arc<Attempt>>, hook: Option<OnOutcome>) {
    let mut releases = JoinSet::new();
    for attempt in attempts {
        let hook = hook.clone();
        releases.spawn(async move {
            let outcome = attempt.release("the worker is stopping", RELEASE_TIMEOUT).await;
            match (outcome, hook) {
                (Some(outcome), Some(hook)) => hook(&attempt.task, &outcome),
                (Some(_), None) => {}
                (None, _) => {
                    let (id, attempt) = (attempt.task.id(), attempt.task.attempt());
                    tracing::warn!(id, attempt, "stopped before the report was answered");
                }
            }
        });
    }
    releases.join_all().await;
}

/// A handler must not outlive the attempt that waits for it.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn panicked(error: JoinError) -> Failure {
    match error.try_into_panic() {
        Ok(panic) => Failure::user_code(format!("the handler panicked: {}", words(&*panic))),
        Err(error) => Failure::user_code(format!("the handler was ended: {error}")),
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}
