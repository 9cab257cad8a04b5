//! One attempt, from the arrival of its lease to the coordinator's verdict.
//!
//! Heartbeats keep the lease while the handler runs. Then the attempt is reported: once, repeated byte for byte only
//! after a fault, and never after the lease is lost.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;
use wire::Json;

use crate::assignment::Assignment;
use crate::contract::Contract;
use crate::handler::{Handler, OnOutcome};
use crate::heartbeater::Heartbeater;
use crate::lease_clock::LeaseClock;
use crate::transport::ANSWER_TIMEOUT;
use crate::{Error, Failure, Outcome, Task, clock};

/// How long a handler may take to stop after its lease is lost. Then its future is dropped.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// How long the release of one lease may take.
pub(crate) const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) struct Attempt {
    contract: Box<dyn Contract>,
    pub task: Task,
    /// Whether the report or the release was begun: only one of them is sent.
    is_closing: AtomicBool,
    has_begun: AtomicBool,
}

/// How the handler's run ended.
enum RunEnd {
    Returned(Result<Json, Failure>),
    /// The coordinator did not answer whether the attempt may begin.
    NotStarted(Error),
    LeaseLost,
}

impl Attempt {
    pub(crate) fn new(contract: Box<dyn Contract>, assignment: Assignment, clock: LeaseClock) -> Attempt {
        Attempt {
            contract,
            task: Task::new(assignment, clock),
            is_closing: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
        }
    }

    /// Runs the attempt to its end and calls the hook with the outcome.
    pub(crate) async fn run(&self, handler: &Handler, hook: Option<OnOutcome>) {
        let task = &self.task;
        let span =
            tracing::info_span!("task", id = task.id(), attempt = task.attempt(), queue = task.queue());
        if let (Some(outcome), Some(hook)) = (self.run_to_outcome(handler).instrument(span).await, hook) {
            hook(task, &outcome);
        }
    }

    /// Whether the handler was called.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// `None` if the lease was released meanwhile.
    async fn run_to_outcome(&self, handler: &Handler) -> Option<Outcome> {
        let heartbeater = Heartbeater { contract: &*self.contract, task: &self.task };
        let ended = match self.start(&heartbeater).await {
            Ok(true) => self.execute(handler, &heartbeater).await,
            Ok(false) => RunEnd::LeaseLost,
            Err(error) => RunEnd::NotStarted(error),
        };
        if !self.begin_closing() {
            return None;
        }
        match ended {
            RunEnd::Returned(result) if !self.task.is_lease_lost() => Some(self.report(result).await),
            RunEnd::NotStarted(error) => {
                self.task.lose("the coordinator did not answer whether the attempt may begin");
                tracing::error!(%error, "the attempt did not begin, because the coordinator did not answer");
                Some(Outcome::Unknown(error))
            }
            RunEnd::Returned(_) | RunEnd::LeaseLost => Some(self.lost()),
        }
    }

    /// Cancels the handler and releases the lease, unless the attempt is reporting already. There is one try: a lease
    /// that is not released expires.
    pub(crate) async fn release(&self, reason: &str, timeout: Duration) -> Option<Outcome> {
        if !self.begin_closing() {
            return None;
        }
        self.task.lose(reason);
        let outcome = match self.contract.release() {
            Ok(request) => match self.contract.transport().try_once(&request, timeout).await {
                Ok(answer) => self.contract.parse_release_answer(&answer),
                Err(fault) => {
                    let url = self.contract.transport().url().to_owned();
                    Outcome::Unknown(Error::NoAnswer { url, why: fault.why })
                }
            },
            Err(error) => Outcome::Unknown(error),
        };
        if !matches!(outcome, Outcome::Released(_) | Outcome::Committed(_)) {
            tracing::warn!(?outcome, "the lease was not released and will expire");
        }
        Some(outcome)
    }

    /// Whether the work may begin: the coordinator agrees if the contract asks for it, and the lease is valid.
    async fn start(&self, heartbeater: &Heartbeater<'_>) -> Result<bool, Error> {
        if let Some(request) = self.contract.start()? {
            let (sent_at, until) = (clock::now(), self.task.clock(|clock| clock.valid_until()));
            let answer = self.contract.transport().call(&request, ANSWER_TIMEOUT, until).await?;
            match self.contract.parse_start_answer(&answer) {
                Ok(()) => self.task.clock(|clock| clock.begin(sent_at)),
                Err(error @ Error::Refused(_)) => {
                    self.task.lose(format!("the coordinator refused the start of the attempt: {error}"));
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(!self.task.clock(|clock| clock.needs_confirmation()) || heartbeater.confirm().await)
    }

    /// Runs the handler with its heartbeats. If the lease is lost meanwhile, the result is discarded.
    async fn execute(&self, handler: &Handler, heartbeater: &Heartbeater<'_>) -> RunEnd {
        self.has_begun.store(true, Ordering::Release);
        let running = handler(self.task.clone()).in_current_span();
        // Ends the handler with the attempt that waits for it.
        let mut running = AbortOnDropHandle::new(tokio::spawn(running));
        tokio::select! {
            biased;
            ended = &mut running => RunEnd::Returned(ended.unwrap_or_else(|error| Err(panicked(error)))),
            () = heartbeater.run() => {
                let _ = tokio::time::timeout(STOP_GRACE, &mut running).await;
                RunEnd::LeaseLost
            }
        }
    }

    async fn report(&self, result: Result<Json, Failure>) -> Outcome {
        if let Err(failure) = &result
            && failure.category() != crate::Category::Cancelled
        {
            tracing::warn!(category = ?failure.category(), reason = failure.reason(), "failed");
        }
        let until = self.task.clock(|clock| clock.valid_until());
        let answered = match self.contract.report(result, self.task.take_metrics()) {
            Ok(request) => self.contract.transport().call(&request, ANSWER_TIMEOUT, until).await,
            Err(error) => Err(error),
        };
        let outcome = match answered {
            Ok(answer) => self.contract.parse_verdict(&answer),
            Err(error) => {
                tracing::error!(%error, "the report was not answered while the lease was valid");
                return Outcome::Unknown(error);
            }
        };
        match &outcome {
            Outcome::Committed(state) => tracing::debug!(state = state.name(), "committed"),
            Outcome::Cancelled => {
                self.task.lose("the coordinator discarded the report");
                tracing::warn!("canceled: the lease was lost, and the result is discarded");
            }
            Outcome::Rejected(error) => {
                tracing::error!(%error, "rejected: this is a bug or a misuse of the protocol");
            }
            other => tracing::error!(outcome = ?other, "another server answered the report"),
        }
        outcome
    }

    fn lost(&self) -> Outcome {
        self.task.lose("the lease ran out");
        let reason = self.task.cancel_reason();
        tracing::warn!(reason, "the lease is lost, and the result is discarded");
        Outcome::Lost
    }

    /// Whether this caller is the first to report or release.
    fn begin_closing(&self) -> bool {
        !self.is_closing.swap(true, Ordering::AcqRel)
    }
}

/// Releases the remaining attempts of a worker that stops, all at once.
pub(crate) async fn release_all(attempts: impl IntoIterator<Item = Arc<Attempt>>, hook: Option<OnOutcome>) {
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

fn panicked(error: JoinError) -> Failure {
    match error.try_into_panic() {
        Ok(panic) => Failure::user_code(format!("the handler panicked: {}", panic_message(&*panic))),
        Err(error) => Failure::user_code(format!("the handler was ended: {error}")),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
