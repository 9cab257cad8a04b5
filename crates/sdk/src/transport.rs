//! Requests to the coordinator, with repeats where a fault lay on the way.
//!
//! Every request that is made here may be repeated without harm: polls by their request id, reports and heartbeats by
//! contract, submits by their dedup key. A repeat has the same body, byte for byte.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wire::{Problem, TENANT_HEADER, WORKSPACE_HEADER};

use crate::backoff::{Backoff, is_undecided};
use crate::{Error, clock};

const DEFAULT_URL: &str = "http://127.0.0.1:8980";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the coordinator may take over a request, beside the wait that the request asks for.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than the longest page of tasks.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// Where the coordinator is and on whose behalf to talk to it. What is missing comes from the environment.
#[derive(Clone, Debug, Default)]
pub struct Address {
    pub url: Option<String>,
    pub tenant: Option<String>,
    pub workspace: Option<String>,
}

/// The connections to one coordinator; a clone shares them.
#[derive(Clone, Debug)]
pub struct Transport {
    http: reqwest::Client,
    base: Url,
}

/// A request that can be sent again and again.
#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    url: Url,
    body: Option<Bytes>,
    authorization: Option<HeaderValue>,
}

/// One try brought no answer that decided anything.
#[derive(Debug)]
pub struct Fault {
    pub why: String,
    pub retry_after: Option<Duration>,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    body: Vec<u8>,
    url: String,
}

impl Transport {
    pub fn new(address: &Address) -> Result<Transport, Error> {
        let given = |value: &Option<String>, variable: &str| {
            value.clone().or_else(|| std::env::var(variable).ok()).filter(|text| !text.is_empty())
        };
        let base = parse_url(&given(&address.url, "LESSOR_URL").unwrap_or_else(|| DEFAULT_URL.to_owned()))?;
        let mut headers = HeaderMap::new();
        let scope = [
            (TENANT_HEADER, given(&address.tenant, "LESSOR_TENANT")),
            (WORKSPACE_HEADER, given(&address.workspace, "LESSOR_WORKSPACE")),
        ];
        for (header, name) in scope {
            if let Some(name) = name {
                let value = HeaderValue::from_str(&name)
                    .map_err(|_| Error::Setup(format!("{header}: {name:?} must be printable ASCII")))?;
                headers.insert(header, value);
            }
        }
        Ok(Transport { http: http_client(headers, Policy::default())?, base })
    }

    /// For a coordinator that is only known once it speaks. Its task tokens say on whose behalf.
    /// It is followed nowhere else: a task token is for the coordinator alone.
    pub fn unscoped() -> Result<Transport, Error> {
        let http = http_client(HeaderMap::new(), Policy::none())?;
        Ok(Transport { http, base: parse_url(DEFAULT_URL)? })
    }

    /// The same connections, to a coordinator elsewhere.
    pub fn to(&self, url: &str) -> Result<Transport, Error> {
        Ok(Transport { http: self.http.clone(), base: parse_url(url)? })
    }

    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    /// A request without a body.
    pub fn get(&self, path: &[&str], query: &impl Serialize) -> Result<Request, Error> {
        let (http, url) = (&self.http, self.at(path));
        let built = http.get(url).query(query).build();
        let url = built.map_err(|error| Error::Setup(error.to_string()))?.url().clone();
        Ok(Request { method: Method::GET, url, body: None, authorization: None })
    }

    pub fn post(&self, path: &[&str], body: &impl Serialize) -> Result<Request, Error> {
        let body = Some(Bytes::from(serde_json::to_vec(body)?));
        Ok(Request { method: Method::POST, url: self.at(path), body, authorization: None })
    }

    fn at(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        url
    }

    /// Asks until there is an answer that decides something, repeating what got lost: a bounded number of times, and
    /// not beyond `until`.
    pub async fn call(&self, request: &Request, timeout: Duration, until: Duration) -> Result<Answer, Error> {
        let mut backoff = Backoff::new();
        loop {
            let remaining = clock::until(until);
            let fault = match remaining.is_zero() {
                true => Fault { why: "there was no time left to ask".to_owned(), retry_after: None },
                false => match self.once(request, timeout.min(remaining)).await {
                    Ok(answer) => return Ok(answer),
                    Err(fault) => fault,
                },
            };
            match backoff.after(fault.retry_after) {
                Some(pause) if clock::now() + pause < until => tokio::time::sleep(pause).await,
                _ => return Err(Error::NoAnswer { url: self.url().to_owned(), why: fault.why }),
            }
        }
    }

    /// One try. An answer that decides nothing is a fault like a lost one.
    pub async fn once(&self, request: &Request, timeout: Duration) -> Result<Answer, Fault> {
        let mut builder: RequestBuilder = self.http.request(request.method.clone(), request.url.clone());
        if let Some(body) = &request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        if let Some(authorization) = &request.authorization {
            builder = builder.header(AUTHORIZATION, authorization.clone());
        }
        let response = builder.timeout(timeout).send().await.map_err(unanswered)?;
        let retry_after = response.headers().get(RETRY_AFTER).and_then(read_retry_after);
        let answer = read(response).await?;
        if is_undecided(answer.status) && answer.problem().is_none_or(|problem| problem.verdict.is_none()) {
            return Err(Fault { why: answer.refusal().to_string(), retry_after });
        }
        Ok(answer)
    }
}

impl Request {
    /// The same, by the bearer of a token.
    pub fn bearer(self, token: &str) -> Result<Request, Error> {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value = value.map_err(|_| Error::Setup("the task token is no header value".to_owned()))?;
        value.set_sensitive(true);
        Ok(Request { authorization: Some(value), ..self })
    }
}

impl Answer {
    #[cfg(test)]
    pub fn new(status: u16, body: Vec<u8>) -> Answer {
        Answer { status, body, url: String::new() }
    }

    pub fn is_done(&self) -> bool {
        matches!(self.status, 200 | 201)
    }

    /// Reads what was asked for, or the coordinator's no.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        match self.is_done() {
            true => serde_json::from_slice(&self.body).map_err(|error| self.foreign(&error)),
            false => Err(self.refusal()),
        }
    }

    pub fn problem(&self) -> Option<Problem> {
        self.parse().ok()
    }

    /// The coordinator's no, or what somebody else said instead.
    pub fn refusal(&self) -> Error {
        match self.parse::<Problem>() {
            Ok(problem) => Error::Refused(Box::new(problem)),
            Err(error) => self.foreign(&error),
        }
    }

    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    fn foreign(&self, error: &serde_json::Error) -> Error {
        Error::Foreign { url: self.url.clone(), status: self.status, why: error.to_string() }
    }
}

fn http_client(headers: HeaderMap, redirects: Policy) -> Result<reqwest::Client, Error> {
    // A proxy for the web is seldom a way to a coordinator, and never to one on this machine.
    reqwest::Client::builder()
        .default_headers(headers)
        .connect_timeout(CONNECT_TIMEOUT)
        .no_proxy()
        .redirect(redirects)
        .user_agent(concat!("lessor-rust/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| Error::Setup(format!("the HTTP client could not be made: {error}")))
}

async fn read(mut response: Response) -> Result<Answer, Fault> {
    let (status, url) = (response.status().as_u16(), response.url().to_string());
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(unanswered)? {
        if body.len() + part.len() > MAX_ANSWER_BYTES {
            let why = format!("the answer has more than {MAX_ANSWER_BYTES} bytes");
            return Err(Fault { why, retry_after: None });
        }
        body.extend_from_slice(&part);
    }
    Ok(Answer { status, body, url })
}

/// In the words of the innermost error, which is the one that people can do something about.
fn unanswered(error: reqwest::Error) -> Fault {
    let mut cause: &dyn std::error::Error = &error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    Fault { why: cause.to_string(), retry_after: None }
}

fn read_retry_after(value: &HeaderValue) -> Option<Duration> {
    value.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

fn parse_url(text: &str) -> Result<Url, Error> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let refused = |why: &str| Error::Setup(format!("{text} is not the URL of a coordinator: {why}"));
    let url = Url::parse(&with_scheme).map_err(|error| refused(&error.to_string()))?;
    match (url.scheme(), url.host_str()) {
        ("http", Some(_)) => Ok(url),
        ("http", None) => Err(refused("it names no host")),
        _ => Err(refused("only http is supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_leave_out_the_scheme() {
        assert_eq!(parse_url("127.0.0.1:8980").unwrap().as_str(), "http://127.0.0.1:8980/");
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused() {
        for url in ["https://host", "ftp://host", "http://", "http://host:port"] {
            assert!(matches!(parse_url(url), Err(Error::Setup(_))), "{url}");
        }
    }

    #[test]
    fn a_path_is_escaped_and_goes_below_the_base() {
        let address = Address { url: Some("http://host/base/".into()), ..Address::default() };
        let transport = Transport::new(&address).unwrap();
        let url = transport.get(&["tasks", "a/b c"], &wire::WaitTask { wait_ms: Some(5) }).unwrap().url;
        assert_eq!(url.as_str(), "http://host/base/v1/tasks/a%2Fb%20c?waitMs=5");
    }
}
