//! One HTTP call and its answer. A lost answer is a value, not an error: lost answers are what this crate tests.
//!
//! Every call is recorded when it is over, answered or not, so that the history of a run has no gaps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use contract_clients::{HttpClient, HttpRequest, HttpResponse, Timeouts};
use reqwest::Method;
use serde_json::Value;

use crate::recorder::{At, Recorder};

/// Longer than any stop of the server, shorter than a test may hang.
pub(crate) const TIMEOUTS: Timeouts =
    Timeouts { connect: Duration::from_secs(2), call: Duration::from_secs(8) };
/// How long an unanswered question is repeated after the faults are over.
const ASK_DEADLINE: Duration = Duration::from_secs(60);
const ASK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(crate) struct Api {
    client: HttpClient,
    /// Records the calls; `None` for calls that only check whether the server runs.
    recorder: Option<Arc<Recorder>>,
}

/// A call that is over.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: Method,
    pub path: String,
    /// The bearer token, where the contract has one.
    pub token: Option<String>,
    pub body: Value,
    pub sent_at: At,
    pub ended_at: At,
    pub answer: Answer,
}

/// The answer to a call.
#[derive(Clone, Debug)]
pub enum Answer {
    Response {
        status: u16,
        body: Value,
    },
    /// No answer, or none that could be read: the call may have happened or not.
    Lost,
}

impl Answer {
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Response { status, .. } => Some(*status),
            Self::Lost => None,
        }
    }

    pub fn body(&self) -> &Value {
        match self {
            Self::Response { body, .. } => body,
            Self::Lost => &Value::Null,
        }
    }

    pub fn is_decided(&self) -> bool {
        !self.is_open()
    }

    /// Nothing was decided as far as we know: lost, not serving, or full. The caller may ask again.
    pub fn is_open(&self) -> bool {
        matches!(self.status(), None | Some(429 | 503))
    }
}

impl Api {
    pub(crate) fn new(address: &str, recorder: Option<Arc<Recorder>>) -> Result<Self> {
        let client = HttpClient::new(&format!("http://{address}"), "lessor-chaos", TIMEOUTS);
        Ok(Self { client: client.context("cannot build an HTTP client")?, recorder })
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(HttpRequest::get(path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(HttpRequest::post(path, body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(HttpRequest::put(path, body)).await
    }

    /// A question that is asked until it is answered.
    pub(crate) async fn ask(&self, path: &str) -> Answer {
        until(Answer::is_decided, || self.get(path)).await
    }

    pub(crate) fn base_url(&self) -> &str {
        self.client.base_url()
    }

    /// Makes a call once and records it.
    pub(crate) async fn send(&self, request: HttpRequest) -> Answer {
        let Some(recorder) = &self.recorder else { return self.answer_to(&request).await };
        let sent_at = recorder.now();
        let answer = self.answer_to(&request).await;
        let ended_at = recorder.now();
        let HttpRequest { method, path, bearer_token, body } = request;
        let call =
            Call { method, path, token: bearer_token, body, sent_at, ended_at, answer: answer.clone() };
        recorder.observations().calls.push(call);
        answer
    }

    async fn answer_to(&self, request: &HttpRequest) -> Answer {
        let Ok(request) = self.client.build(request).build() else { return Answer::Lost };
        let Ok(HttpResponse { status, text, .. }) = self.client.send(request).await else {
            return Answer::Lost;
        };
        // A body that is not JSON is kept as text, so that an unexpected answer can be printed.
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Answer::Response { status, body }
    }
}

/// Makes a call again until its answer is one, or too much time has passed.
pub(crate) async fn until<T, F: Future<Output = T>>(
    is_decided: impl Fn(&T) -> bool,
    call: impl Fn() -> F,
) -> T {
    let deadline = Instant::now() + ASK_DEADLINE;
    loop {
        let answer = call().await;
        if is_decided(&answer) || Instant::now() > deadline {
            return answer;
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}
