//! One HTTP call and its answer. A lost answer is a value, not an error: it is what this crate is about.
//!
//! Every call is noted down when it is over, answered or not: the history of a run has no gaps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::facts::{At, Facts};

/// Longer than any stop of the server, shorter than a test may hang.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);
/// How long a question is asked again that nobody answers although nothing is killed any more.
const ASK_DEADLINE: Duration = Duration::from_secs(60);
const ASK_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub struct Api {
    client: reqwest::Client,
    base: String,
    /// Where calls are noted, except those that only ask whether the server is there.
    facts: Option<Arc<Facts>>,
}

/// A call that is over.
#[derive(Clone, Debug)]
pub struct Call {
    pub method: &'static str,
    pub path: String,
    /// The bearer token, where the contract has one.
    pub token: Option<String>,
    pub body: Value,
    pub sent_at: At,
    pub ended_at: At,
    pub answer: Answer,
}

/// What came back from a call.
#[derive(Clone, Debug)]
pub enum Answer {
    Told {
        status: u16,
        body: Value,
    },
    /// No answer, or none that could be read: the call may have happened or not.
    Lost,
}

impl Answer {
    pub fn status(&self) -> Option<u16> {
        match self {
            Self::Told { status, .. } => Some(*status),
            Self::Lost => None,
        }
    }

    pub fn body(&self) -> &Value {
        match self {
            Self::Told { body, .. } => body,
            Self::Lost => &Value::Null,
        }
    }

    pub fn is_told(&self) -> bool {
        !self.is_open()
    }

    /// Nothing was decided as far as we know: lost, not serving, or full. The caller may ask again.
    pub fn is_open(&self) -> bool {
        matches!(self.status(), None | Some(429 | 503))
    }
}

impl Api {
    pub fn new(address: &str, facts: Option<Arc<Facts>>) -> Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .connect_timeout(Duration::from_secs(2))
            .no_proxy()
            .build()
            .context("cannot build an HTTP client")?;
        Ok(Self { client, base: format!("http://{address}"), facts })
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call("GET", self.client.get(self.url(path)), path, None, Value::Null).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call("POST", self.client.post(self.url(path)).json(body), path, None, body.clone()).await
    }

    /// A call by the bearer of a token.
    pub async fn post_as(&self, token: &str, path: &str, body: &Value) -> Answer {
        let request = self.client.post(self.url(path)).bearer_auth(token).json(body);
        self.call("POST", request, path, Some(token.to_owned()), body.clone()).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.call("PUT", self.client.put(self.url(path)).json(body), path, None, body.clone()).await
    }

    /// A question that is asked until it is answered.
    pub async fn ask(&self, path: &str) -> Answer {
        until(Answer::is_told, || self.get(path)).await
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    async fn call(
        &self,
        method: &'static str,
        request: reqwest::RequestBuilder,
        path: &str,
        token: Option<String>,
        body: Value,
    ) -> Answer {
        let Some(facts) = &self.facts else { return send(request).await };
        let sent_at = facts.now();
        let answer = send(request).await;
        let (path, ended_at) = (path.to_owned(), facts.now());
        facts.book().calls.push(Call {
            method,
            path,
            token,
            body,
            sent_at,
            ended_at,
            answer: answer.clone(),
        });
        answer
    }
}

async fn send(request: reqwest::RequestBuilder) -> Answer {
    let Ok(response) = request.send().await else { return Answer::Lost };
    let status = response.status().as_u16();
    let Ok(bytes) = response.bytes().await else { return Answer::Lost };
    // A body that is no JSON is kept as text, so that an unexpected answer can be shown.
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
    Answer::Told { status, body }
}

/// Makes a call again until its answer is one, or too much time has passed.
pub async fn until<T, F: Future<Output = T>>(is_told: impl Fn(&T) -> bool, call: impl Fn() -> F) -> T {
    let deadline = Instant::now() + ASK_DEADLINE;
    loop {
        let answer = call().await;
        if is_told(&answer) || Instant::now() > deadline {
            return answer;
        }
        tokio::time::sleep(ASK_INTERVAL).await;
    }
}
