//! One HTTP call and its answer. A lost answer is a value, not an error: lost answers are what this crate tests.
//!
//! Every call is recorded when it is over, answered or not, so that the history of a run has no gaps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use contract_clients::{HttpClient, HttpRequest, HttpResponse};
use reqwest::Method;
use serde_json::Value;

use crate::nodes::Nodes;
use crate::recorder::{At, Recorder, Sent};

/// How long an unanswered question is repeated after the faults are over.
const ASK_DEADLINE: Duration = Duration::from_secs(60);
const ASK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub(crate) struct Api {
    nodes: Arc<Nodes>,
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
    pub(crate) fn new(nodes: Arc<Nodes>, recorder: Option<Arc<Recorder>>) -> Self {
        Self { nodes, recorder }
    }

    /// One for calls that only check whether a server runs.
    pub(crate) fn probe(address: &str) -> Result<Self> {
        Ok(Self::new(Arc::new(Nodes::single(address)?), None))
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

    /// Makes a call once and records it. A call whose node was taken down is made again, elsewhere.
    pub(crate) async fn send(&self, request: HttpRequest) -> Answer {
        let Some(recorder) = &self.recorder else {
            return answer_to(self.nodes.visit().http(), &request).await;
        };
        let mut sent = Sent::new(recorder.now(), own_wait(&request));
        loop {
            let visit = self.nodes.visit();
            let sent_at = recorder.now();
            let answer = visit.unless_down(answer_to(visit.http(), &request)).await.unwrap_or(Answer::Lost);
            let ended_at = recorder.now();
            let HttpRequest { method, path, bearer_token, body } = request.clone();
            let call =
                Call { method, path, token: bearer_token, body, sent_at, ended_at, answer: answer.clone() };
            recorder.observations().calls.push(call);
            if matches!(answer, Answer::Lost) && visit.was_taken_down() && sent.may_repeat() {
                continue;
            }
            if self.nodes.is_cluster() {
                let failure = answer
                    .is_open()
                    .then(|| format!("{} {} was answered {answer:?}", request.method, request.path));
                recorder.note_sent(sent, &visit, failure);
            }
            return answer;
        }
    }
}

async fn answer_to(client: &HttpClient, request: &HttpRequest) -> Answer {
    let Ok(request) = client.build(request).build() else { return Answer::Lost };
    let Ok(HttpResponse { status, text, .. }) = client.send(request).await else {
        return Answer::Lost;
    };
    // A body that is not JSON is kept as text, so that an unexpected answer can be printed.
    let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
    Answer::Response { status, body }
}

/// How long a request asks the server to wait.
fn own_wait(request: &HttpRequest) -> Duration {
    let wait_ms = ["waitMs", "max_wait_ms"].iter().find_map(|field| request.body[field].as_u64());
    Duration::from_millis(wait_ms.unwrap_or_default())
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
