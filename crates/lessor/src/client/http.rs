//! Requests to the server and their answers.
//!
//! Every request that these commands make may be repeated without harm: reads, a cancel, a redrive and a queue's
//! configuration by contract, a submit by its dedup key. So a lost answer is asked for again, for a bounded time.

use std::cell::Cell;
use std::time::{Duration, Instant};

use reqwest::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use wire::{Problem, TENANT_HEADER, WORKSPACE_HEADER};

use super::connection::Connection;
use super::error::Error;
use super::show::note;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a server may take over a request, beside the wait that the request asks for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a request is repeated for: enough for a server to be restarted.
const RETRY_FOR: Duration = Duration::from_secs(15);
const FIRST_RETRY_AFTER: Duration = Duration::from_millis(100);
const MAX_RETRY_AFTER: Duration = Duration::from_secs(2);

pub struct Client {
    http: reqwest::Client,
    base: Url,
    /// Whether the server was heard before. Until then a refused connection means that there is none, and waiting
    /// for it would only keep the user waiting; afterwards it means a restart.
    has_answered: Cell<bool>,
}

/// What the server said to a request that it did.
pub struct Answer {
    pub status: StatusCode,
    /// The JSON as it came.
    pub body: String,
    url: String,
}

impl Client {
    pub fn new(connection: &Connection) -> anyhow::Result<Client> {
        let mut headers = HeaderMap::new();
        headers.insert(TENANT_HEADER, connection.tenant.clone());
        headers.insert(WORKSPACE_HEADER, connection.workspace.clone());
        // A proxy for the web is seldom a way to a coordinator, and never to one on this machine.
        let http = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(CONNECT_TIMEOUT)
            .no_proxy()
            .user_agent(concat!("lessor/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Client { http, base: connection.url.clone(), has_answered: Cell::new(false) })
    }

    pub async fn get(&self, path: &[&str], query: &impl Serialize) -> Result<Answer, Error> {
        self.send(self.request(Method::GET, path).query(query)).await
    }

    /// A read that the server may hold back for so long.
    pub async fn get_waiting(
        &self,
        path: &[&str],
        query: &impl Serialize,
        wait: Duration,
    ) -> Result<Answer, Error> {
        self.send(self.request(Method::GET, path).query(query).timeout(wait + ANSWER_TIMEOUT)).await
    }

    pub async fn post(&self, path: &[&str], body: &impl Serialize) -> Result<Answer, Error> {
        self.send(self.request(Method::POST, path).json(body)).await
    }

    pub async fn put(&self, path: &[&str], body: &impl Serialize) -> Result<Answer, Error> {
        self.send(self.request(Method::PUT, path).json(body)).await
    }

    fn request(&self, method: Method, path: &[&str]) -> RequestBuilder {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        self.http.request(method, url).timeout(ANSWER_TIMEOUT)
    }

    /// Sends until there is an answer that settles the matter, or the time for it is over.
    async fn send(&self, request: RequestBuilder) -> Result<Answer, Error> {
        let mut pause = FIRST_RETRY_AFTER;
        let mut first_failure = None;
        loop {
            // Bodies are in memory, so a request can always be repeated.
            let Some(again) = request.try_clone() else {
                return self.once(request).await.map_err(|failed| failed.error);
            };
            let failed = match self.once(again).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            let next = failed.retry_after.unwrap_or(pause);
            let is_first = first_failure.is_none();
            let since = first_failure.get_or_insert_with(Instant::now);
            if failed.is_settled || since.elapsed().saturating_add(next) > RETRY_FOR {
                return Err(failed.error);
            }
            if is_first {
                note("lessor: no answer yet, asking again");
            }
            tokio::time::sleep(next).await;
            pause = (pause * 2).min(MAX_RETRY_AFTER);
        }
    }

    async fn once(&self, request: RequestBuilder) -> Result<Answer, Failed> {
        let response = request.send().await.map_err(|error| self.unanswered(&error))?;
        self.has_answered.set(true);
        let (status, headers) = (response.status(), response.headers().clone());
        let (url, body) = read_body(response).await.map_err(|error| self.unanswered(&error))?;
        if status.is_success() {
            return Ok(Answer { status, body, url });
        }
        Err(refused(status, &headers, url, &body))
    }

    fn unanswered(&self, error: &reqwest::Error) -> Failed {
        let (url, why) = (self.base.as_str().trim_end_matches('/').to_owned(), root_cause(error));
        let no_server = error.is_connect() && !self.has_answered.get();
        let error = match no_server {
            true => Error::NoServer { url, why },
            false => Error::Silent { url, seconds: RETRY_FOR.as_secs(), why },
        };
        Failed { error, is_settled: no_server, retry_after: None }
    }
}

impl Answer {
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, Error> {
        serde_json::from_str(&self.body).map_err(|error| Error::Foreign {
            url: self.url.clone(),
            status: self.status.as_u16(),
            why: error.to_string(),
        })
    }
}

/// One try that brought no answer, or an answer that says no.
struct Failed {
    error: Error,
    /// Whether asking again would change nothing.
    is_settled: bool,
    retry_after: Option<Duration>,
}

fn refused(status: StatusCode, headers: &HeaderMap, url: String, body: &str) -> Failed {
    let error = match serde_json::from_str::<Problem>(body) {
        Ok(problem) => Error::Refused(Box::new(problem)),
        Err(error) => Error::Foreign { url, status: status.as_u16(), why: error.to_string() },
    };
    // Full, not serving, or a gateway in between that does not reach it.
    let is_settled = !matches!(status.as_u16(), 429 | 502..=504);
    Failed { error, is_settled, retry_after: headers.get(RETRY_AFTER).and_then(parse_retry_after) }
}

async fn read_body(response: Response) -> reqwest::Result<(String, String)> {
    Ok((response.url().to_string(), response.text().await?))
}

fn parse_retry_after(value: &HeaderValue) -> Option<Duration> {
    value.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// The innermost error, which is the one that people can do something about.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
