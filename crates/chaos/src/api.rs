//! One HTTP call and its answer. A lost answer is a value, not an error: it is what this crate is about.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

/// Longer than any stop of the server, shorter than a test may hang.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);

#[derive(Clone)]
pub struct Api {
    client: reqwest::Client,
    base: String,
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

    /// Nothing was decided as far as we know: lost, not serving, or full. The caller may ask again.
    pub fn is_open(&self) -> bool {
        matches!(self.status(), None | Some(429 | 503))
    }
}

impl Api {
    pub fn new(address: &str) -> Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(CALL_TIMEOUT)
            .connect_timeout(Duration::from_secs(2))
            .no_proxy()
            .build()
            .context("cannot build an HTTP client")?;
        Ok(Self { client, base: format!("http://{address}") })
    }

    pub async fn get(&self, path: &str) -> Answer {
        self.call(self.client.get(format!("{}{path}", self.base))).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.call(self.client.post(format!("{}{path}", self.base)).json(body)).await
    }

    pub async fn put(&self, path: &str, body: &Value) -> Answer {
        self.call(self.client.put(format!("{}{path}", self.base)).json(body)).await
    }

    async fn call(&self, request: reqwest::RequestBuilder) -> Answer {
        let Ok(response) = request.send().await else { return Answer::Lost };
        let status = response.status().as_u16();
        let Ok(bytes) = response.bytes().await else { return Answer::Lost };
        // A body that is no JSON is kept as text, so that an unexpected answer can be shown.
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer::Told { status, body }
    }
}
