//! One lease from its arrival to the coordinator's verdict.
//!
//! The handler runs, heartbeats keep the lease while it does, and how it ended is reported: once, repeated with the
//! same words only where a fault lay on the way, and never after the lease is lost.

use std::any::Any;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use tokio::task::{JoinError, JoinHandle};
use tracing::Instrument;
use wire::{Json, Lease, ReleaseLease, Released, ReportAnswer, ReportCompletion, Verdict};

use crate::heart::Heart;
use crate::lease_clock::LeaseClock;
use crate::transport::{ANSWER_TIMEOUT, Request, Transport};
use crate::{Error, Failure, Outcome, Task};

const MAX_RESULT_BYTES: usize = 1024 * 1024;
/// How long a handler may take to stop once its lease is lost. Then it is dropped where it waits.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// What a handler comes down to.
pub type Handler = Arc<dyn Fn(Task) -> Running + Send + Sync>;
pub type Running = Pin<Box<dyn Future<Output = Result<Json, Failure>> + Send>>;

pub struct Attempt {
    transport: Transport,
    worker_id: Arc<str>,
    pub task: Task,
    /// Whether somebody has the word: whoever gets it may speak to the coordinator about how the attempt ended.
    is_spoken_for: AtomicBool,
}

impl Attempt {
    pub fn new(
        transport: Transport,
        worker_id: Arc<str>,
        lease: Lease,
        asked_at: Duration,
        heard_at: Duration,
    ) -> Attempt {
        let clock = LeaseClock::new(&lease, asked_at, heard_at);
        Attempt { transport, worker_id, task: Task::new(lease, clock), is_spoken_for: AtomicBool::new(false) }
    }

    /// To the end. Nothing when the lease was given back meanwhile.
    pub async fn run(&self, handler: &Handler) -> Option<Outcome> {
        let heart = Heart { transport: &self.transport, worker_id: &self.worker_id, task: &self.task };
        let lives = !self.task.clock(|clock| clock.needs_confirming()) || heart.confirm().await;
        let ended = if lives { self.execute(handler, &heart).await } else { None };
        if !self.take_word() {
            return None;
        }
        match ended {
            Some(ended) if !self.task.is_lease_lost() => Some(self.report(ended).await),
            _ => Some(self.lost()),
        }
    }

    /// Tells the handler to stop and gives the lease back, unless the attempt is reporting already. One try: what gets
    /// lost expires by itself.
    pub async fn release(&self, reason: &str, timeout: Duration) -> Option<Outcome> {
        if !self.take_word() {
            return None;
        }
        self.task.lose(reason);
        let body =
            ReleaseLease { worker_id: self.worker_id.to_string(), task_id: Some(self.task.id().to_owned()) };
        let outcome = match self.transport.post(&self.path("release"), &body) {
            Ok(request) => match self.transport.once(&request, timeout).await {
                Ok(answer) => match answer.read::<Released>() {
                    Ok(released) => Outcome::Released(released.state),
                    Err(error @ Error::Refused(_)) => Outcome::Rejected(error),
                    Err(error) => Outcome::Unknown(error),
                },
                Err(fault) => Outcome::Unknown(Error::NoAnswer { url: self.url(), why: fault.why }),
            },
            Err(error) => Outcome::Unknown(error),
        };
        if !matches!(outcome, Outcome::Released(_)) {
            tracing::warn!(?outcome, "the lease was not given back and has to run out");
        }
        Some(outcome)
    }

    /// Runs the handler with its heartbeats. Nothing when the lease was lost meanwhile: then whatever it says is
    /// discarded.
    async fn execute(&self, handler: &Handler, heart: &Heart<'_>) -> Option<Result<Json, Failure>> {
        let running = handler(self.task.clone()).in_current_span();
        let mut running = AbortOnDrop(tokio::spawn(running));
        tokio::select! {
            biased;
            ended = &mut running.0 => Some(ended.unwrap_or_else(|error| Err(panicked(error)))),
            () = heart.run() => {
                let _ = tokio::time::timeout(STOP_GRACE, &mut running.0).await;
                None
            }
        }
    }

    async fn report(&self, ended: Result<Json, Failure>) -> Outcome {
        let request = match ended {
            Ok(result) => self.completion(result),
            Err(failure) => self.failure(failure),
        };
        let until = self.task.clock(|clock| clock.valid_until());
        let answered = match request {
            Ok(request) => self.transport.call(&request, ANSWER_TIMEOUT, until).await,
            Err(error) => Err(error),
        };
        let answer = match answered {
            Ok(answer) => answer,
            Err(error) => {
                tracing::error!(%error, "the report was not answered while the lease lived");
                return Outcome::Unknown(error);
            }
        };
        match answer.read::<ReportAnswer>() {
            Ok(told) => {
                tracing::debug!(state = told.state.name(), "committed");
                Outcome::Committed(told.state)
            }
            Err(Error::Refused(problem)) if problem.verdict == Some(Verdict::Cancelled) => {
                self.task.lose("the coordinator discarded the report");
                tracing::warn!("cancelled: the lease was lost, and the result is discarded");
                Outcome::Cancelled
            }
            Err(error @ Error::Refused(_)) => {
                tracing::error!(%error, "rejected, which is a bug or a misuse of the protocol");
                Outcome::Rejected(error)
            }
            Err(error) => {
                tracing::error!(%error, "somebody else answered the report");
                Outcome::Unknown(error)
            }
        }
    }

    fn completion(&self, result: Json) -> Result<Request, Error> {
        let body = ReportCompletion {
            worker_id: self.worker_id.to_string(),
            task_id: Some(self.task.id().to_owned()),
            result: Some(result),
        };
        self.transport.post(&self.path("complete"), &body)
    }

    fn failure(&self, failure: Failure) -> Result<Request, Error> {
        if failure.category() != crate::Category::Cancelled {
            tracing::warn!(category = ?failure.category(), reason = failure.reason(), "failed");
        }
        let body = failure.into_report(self.worker_id.to_string(), self.task.id().to_owned());
        self.transport.post(&self.path("fail"), &body)
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

    fn path<'a>(&'a self, call: &'a str) -> [&'a str; 3] {
        ["leases", self.task.lease_id(), call]
    }

    fn url(&self) -> String {
        self.transport.url().to_owned()
    }
}

/// A handler's result as the coordinator takes it, or a failure that says why it would not.
pub fn result_json(result: &impl Serialize) -> Result<Json, Failure> {
    let json = Json::from_value(result).map_err(|error| {
        Failure::configuration(format!("the result is not JSON: {error}")).code("result_not_json")
    })?;
    let size_bytes = json.as_text().len();
    if size_bytes > MAX_RESULT_BYTES {
        let reason =
            format!("the result has {size_bytes} bytes as JSON, and at most {MAX_RESULT_BYTES} are taken");
        return Err(Failure::configuration(reason).code("result_too_large"));
    }
    Ok(json)
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
