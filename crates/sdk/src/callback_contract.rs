//! The callback contract of push targets, which authenticate with a task token.
//!
//! Answers to heartbeats renew the token. It is never logged and is sent to the coordinator only.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use wire::{
    CallbackOutcome, CallbackProblem, CallbackState, CompletionAcknowledged, HeartbeatAcknowledged, Json,
    Problem, StartAcknowledged, TaskCompleted, TaskEnvelope, TaskHeartbeat, TaskStarted, TaskState,
};

use crate::contract::{Cancel, Contract, LeaseAnswer};
use crate::task::Progress;
use crate::transport::{Answer, Request, Transport};
use crate::{Category, Error, Failure, Metrics, Outcome};

pub(crate) struct CallbackContract {
    transport: Transport,
    worker_id: Arc<str>,
    task_id: String,
    attempt: u32,
    cancel_grace: Duration,
    token: Mutex<String>,
}

impl CallbackContract {
    pub(crate) fn new(
        transport: Transport,
        worker_id: Arc<str>,
        envelope: &TaskEnvelope,
    ) -> CallbackContract {
        CallbackContract {
            transport,
            worker_id,
            task_id: envelope.task_id.clone(),
            attempt: envelope.attempt,
            cancel_grace: Duration::from_millis(envelope.cancel_grace_period_ms),
            token: Mutex::new(envelope.task_token.clone()),
        }
    }

    fn post(&self, call: &str, body: &impl serde::Serialize) -> Result<Request, Error> {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        self.transport.post(&["tasks", &self.task_id, call], body)?.bearer(&token)
    }

    fn renew(&self, token: Option<String>) {
        if let Some(token) = token {
            *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
        }
    }

    fn completed(&self, outcome: CallbackOutcome) -> TaskCompleted {
        TaskCompleted {
            attempt: self.attempt,
            worker_id: self.worker_id.to_string(),
            outcome,
            completed_at: Some(Timestamp::now()),
            output: None,
            error: None,
            metrics: None,
            cancelled_during_phase: None,
            partial_progress: None,
        }
    }
}

impl Contract for CallbackContract {
    fn transport(&self) -> &Transport {
        &self.transport
    }

    fn start(&self) -> Result<Option<Request>, Error> {
        let worker_id = self.worker_id.to_string();
        let body = TaskStarted { attempt: self.attempt, worker_id, started_at: Some(Timestamp::now()) };
        self.post("started", &body).map(Some)
    }

    fn parse_start_answer(&self, answer: &Answer) -> Result<(), Error> {
        parse::<StartAcknowledged>(answer).map(|_| ())
    }

    fn heartbeat(&self, progress: Option<Progress>) -> Result<Request, Error> {
        let (progress_pct, message) =
            progress.map_or((None, None), |progress| (progress.pct, progress.message));
        let (worker_id, heartbeat_at) = (self.worker_id.to_string(), Some(Timestamp::now()));
        let body = TaskHeartbeat { attempt: self.attempt, worker_id, heartbeat_at, progress_pct, message };
        self.post("heartbeat", &body)
    }

    fn parse_heartbeat_answer(&self, answer: &Answer) -> LeaseAnswer {
        match parse::<HeartbeatAcknowledged>(answer) {
            Ok(answer) => {
                self.renew(answer.task_token);
                let cancel = Cancel::new(answer.should_cancel, answer.cancel_reason, Some(self.cancel_grace));
                LeaseAnswer::Live { expires_at: None, cancel }
            }
            Err(error @ Error::Refused(_)) => LeaseAnswer::Over(format!("a heartbeat was refused: {error}")),
            Err(error) => LeaseAnswer::Foreign(error),
        }
    }

    fn report(&self, ended: Result<Json, Failure>, metrics: Option<Metrics>) -> Result<Request, Error> {
        let body = match ended {
            Ok(output) => {
                TaskCompleted { output: Some(output), ..self.completed(CallbackOutcome::Succeeded) }
            }
            Err(mut failure) => {
                let partial_progress = failure.take_partial_progress();
                let outcome = match failure.category() {
                    Category::Cancelled => CallbackOutcome::Cancelled,
                    _ => CallbackOutcome::Failed,
                };
                let error = Some(failure.into_callback_error());
                TaskCompleted { error, partial_progress, ..self.completed(outcome) }
            }
        };
        let metrics = metrics.and_then(|metrics| Json::from_value(&metrics).ok());
        self.post("completed", &TaskCompleted { metrics, ..body })
    }

    fn parse_verdict(&self, answer: &Answer) -> Outcome {
        match parse::<CompletionAcknowledged>(answer) {
            Ok(answer) => Outcome::Committed(to_task_state(answer.final_state)),
            Err(Error::Refused(problem)) if is_authority_lost(&problem) => Outcome::Cancelled,
            Err(error) => Outcome::refused(error),
        }
    }

    /// This contract has no release. A retryable failure is the nearest: silence would cost the task an attempt too, and
    /// the time until the coordinator notices.
    fn release(&self) -> Result<Request, Error> {
        let failure = Failure::infrastructure("the worker is stopping").code("worker_stopping");
        self.report(Err(failure.retryable(true)), None)
    }

    fn parse_release_answer(&self, answer: &Answer) -> Outcome {
        self.parse_verdict(answer)
    }
}

fn is_authority_lost(problem: &Problem) -> bool {
    matches!(problem.code.as_str(), "attempt_mismatch" | "task_already_terminal" | "task_expired")
}

/// Parses an acknowledgement, or a refusal in the form of this contract.
fn parse<T: DeserializeOwned>(answer: &Answer) -> Result<T, Error> {
    match answer.parse_body::<CallbackProblem>() {
        Ok(problem) if !answer.is_success() && is_code(&problem.error) => {
            let (status, detail, code) = (answer.status, problem.message, problem.error);
            Err(Error::Refused(Box::new(Problem { status, detail, code, ..Problem::default() })))
        }
        _ => answer.parse(),
    }
}

/// Gateways also answer with an `error` and a `message`, but hardly with such a code.
fn is_code(error: &str) -> bool {
    error.contains('_') && error.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// The task's state. This contract does not distinguish every end by the coordinator from a failure.
fn to_task_state(state: CallbackState) -> TaskState {
    match state {
        CallbackState::Succeeded => TaskState::Completed,
        CallbackState::Failed => TaskState::Failed,
        CallbackState::Cancelled => TaskState::Dead,
        CallbackState::RetryWait => TaskState::Waiting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_body(status: u16, body: &str) -> Result<StartAcknowledged, Error> {
        parse(&Answer::new(status, body.as_bytes().to_vec()))
    }

    #[test]
    fn a_refusal_is_distinguished_from_the_page_of_a_gateway() {
        let refused =
            parse_body(409, r#"{"error":"task_already_terminal","state":"CANCELLED","message":"m"}"#);
        assert!(matches!(refused, Err(Error::Refused(problem)) if problem.code == "task_already_terminal"));
        for foreign in [r#"{"error":"Not Found","message":"no route"}"#, "<html>", "{}"] {
            assert!(matches!(parse_body(404, foreign), Err(Error::Foreign { .. })), "{foreign}");
        }
    }

    #[test]
    fn only_lost_authority_is_cancelled() {
        for (code, is_lost) in [
            ("attempt_mismatch", true),
            ("task_already_terminal", true),
            ("task_expired", true),
            ("attempt_already_completed", false),
            ("attempt_already_started", false),
            ("invalid_token", false),
        ] {
            let refused = parse_body(409, &format!(r#"{{"error":"{code}","message":"m"}}"#)).unwrap_err();
            assert_eq!(is_authority_lost(refused.problem().unwrap()), is_lost, "{code}");
        }
    }
}
