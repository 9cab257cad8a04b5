//! HTTP requests to the coordinator, retried after faults.
//!
//! Every request may be repeated without harm: polls by their request id, reports and heartbeats by contract, submits by
//! their dedup key. A repeat has the same body, byte for byte.

use std::borrow::Cow;
use std::time::Duration;

use backon::Retryable;
use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wire::{Problem, TENANT_HEADER, WORKSPACE_HEADER};

use crate::backoff::{at_least, limited};
use crate::{Error, clock};

const DEFAULT_URL: &str = "http://127.0.0.1:8980";
const DEFAULT_USER_AGENT: &str = concat!("lessor-rust/", env!("CARGO_PKG_VERSION"));
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the coordinator may take to answer, in addition to the wait that a request asks for.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than the longest page of tasks.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;

/// The coordinator's URL and the scope of the requests. Missing fields come from the environment.
#[derive(Clone, Debug, Default)]
pub struct Address {
    pub url: Option<String>,
    pub tenant: Option<String>,
    pub workspace: Option<String>,
    pub user_agent: Option<&'static str>,
}

/// The connections to one coordinator; a clone shares them.
#[derive(Clone, Debug)]
pub struct Transport {
    http: reqwest::Client,
    base: Url,
}

/// A request that can be sent any number of times.
#[derive(Clone, Debug)]
pub struct Request {
    method: Method,
    url: Url,
    body: Option<Bytes>,
    authorization: Option<HeaderValue>,
}

/// Why one try brought no answer that decided anything.
#[derive(Debug)]
pub struct Fault {
    pub why: String,
    pub retry_after: Option<Duration>,
    /// Whether there was no connection, so that the coordinator cannot have seen the request.
    pub is_connect: bool,
    /// An answer that decided nothing.
    pub answer: Option<Answer>,
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
        let base = to_base(&given(&address.url, "LESSOR_URL").unwrap_or_else(|| DEFAULT_URL.to_owned()))?;
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
        let user_agent = address.user_agent.unwrap_or(DEFAULT_USER_AGENT);
        Ok(Transport { http: http_client(headers, Policy::default(), user_agent)?, base })
    }

    /// For push targets, which learn the coordinator's URL from each envelope. Task tokens carry the scope. Redirects
    /// are not followed: a task token is for the coordinator alone.
    pub fn unscoped() -> Result<Transport, Error> {
        let http = http_client(HeaderMap::new(), Policy::none(), DEFAULT_USER_AGENT)?;
        Ok(Transport { http, base: to_base(DEFAULT_URL)? })
    }

    /// The same connection pool, for another coordinator.
    pub fn to(&self, url: &str) -> Result<Transport, Error> {
        Ok(Transport { http: self.http.clone(), base: to_base(url)? })
    }

    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    pub fn get(&self, path: &[&str], query: &impl Serialize) -> Result<Request, Error> {
        let built = self.http.get(self.url_of(path)).query(query).build();
        let url = built.map_err(|error| Error::Setup(error.to_string()))?.url().clone();
        Ok(Request { method: Method::GET, url, body: None, authorization: None })
    }

    pub fn post(&self, path: &[&str], body: &impl Serialize) -> Result<Request, Error> {
        self.with_body(Method::POST, path, body)
    }

    pub fn put(&self, path: &[&str], body: &impl Serialize) -> Result<Request, Error> {
        self.with_body(Method::PUT, path, body)
    }

    pub fn delete(&self, path: &[&str]) -> Request {
        Request { method: Method::DELETE, url: self.url_of(path), body: None, authorization: None }
    }

    fn with_body(&self, method: Method, path: &[&str], body: &impl Serialize) -> Result<Request, Error> {
        let body = Some(Bytes::from(serde_json::to_vec(body)?));
        Ok(Request { method, url: self.url_of(path), body, authorization: None })
    }

    fn url_of(&self, path: &[&str]) -> Url {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("v1").extend(path);
        }
        url
    }

    /// Sends a request until an answer decides something, a bounded number of times and not after `deadline`.
    pub async fn call(
        &self,
        request: &Request,
        timeout: Duration,
        deadline: Duration,
    ) -> Result<Answer, Error> {
        let try_once = || async {
            let remaining = clock::until(deadline);
            if remaining.is_zero() {
                return Err(Fault::no_answer("there was no time left to ask".to_owned(), false));
            }
            self.try_once(request, timeout.min(remaining)).await
        };
        let answered = try_once.retry(limited()).adjust(|fault: &Fault, delay| {
            delay
                .map(|delay| at_least(delay, fault.retry_after))
                .filter(|delay| *delay < clock::until(deadline))
        });
        answered.await.map_err(|fault| Error::NoAnswer { url: self.url().to_owned(), why: fault.why })
    }

    /// Sends a request once. An answer that decides nothing is a fault, like a lost one.
    pub async fn try_once(&self, request: &Request, timeout: Duration) -> Result<Answer, Fault> {
        let mut builder: RequestBuilder = self.http.request(request.method.clone(), request.url.clone());
        if let Some(body) = &request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body.clone());
        }
        if let Some(authorization) = &request.authorization {
            builder = builder.header(AUTHORIZATION, authorization.clone());
        }
        let response = builder.timeout(timeout).send().await?;
        let retry_after = response.headers().get(RETRY_AFTER).and_then(parse_retry_after);
        let answer = receive(response).await?;
        if is_undecided(answer.status) && answer.problem().is_none_or(|problem| problem.verdict.is_none()) {
            let why = answer.refusal().to_string();
            return Err(Fault { why, retry_after, is_connect: false, answer: Some(answer) });
        }
        Ok(answer)
    }
}

impl Request {
    /// Adds a bearer token.
    pub fn bearer(self, token: &str) -> Result<Request, Error> {
        let value = HeaderValue::from_str(&format!("Bearer {token}"));
        let mut value =
            value.map_err(|_| Error::Setup("the task token is not a valid header value".to_owned()))?;
        value.set_sensitive(true);
        Ok(Request { authorization: Some(value), ..self })
    }
}

impl Answer {
    #[cfg(test)]
    pub fn new(status: u16, body: Vec<u8>) -> Answer {
        Answer { status, body, url: String::new() }
    }

    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.body)
    }

    /// Parses what was asked for, or the coordinator's refusal.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        if self.is_success() {
            self.parse_body().map_err(|error| self.foreign(&error))
        } else {
            Err(self.refusal())
        }
    }

    pub fn problem(&self) -> Option<Problem> {
        self.parse_body().ok()
    }

    /// The coordinator's refusal, or what another server answered instead.
    pub fn refusal(&self) -> Error {
        match self.parse_body::<Problem>() {
            Ok(problem) => Error::Refused(Box::new(problem)),
            Err(error) => self.foreign(&error),
        }
    }

    pub fn parse_body<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.body)
    }

    fn foreign(&self, error: &serde_json::Error) -> Error {
        Error::Foreign { url: self.url.clone(), status: self.status, why: error.to_string() }
    }
}

impl Fault {
    fn no_answer(why: String, is_connect: bool) -> Fault {
        Fault { why, retry_after: None, is_connect, answer: None }
    }
}

impl From<reqwest::Error> for Fault {
    /// Quotes the innermost error, which is the one that people can do something about.
    fn from(error: reqwest::Error) -> Fault {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Fault::no_answer(cause.to_string(), error.is_connect())
    }
}

/// Whether an answer with this status decides nothing: the coordinator is too slow, overloaded, broken or not serving,
/// or a gateway does not reach it.
fn is_undecided(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502..=504)
}

fn http_client(
    headers: HeaderMap,
    redirects: Policy,
    user_agent: &'static str,
) -> Result<reqwest::Client, Error> {
    // A web proxy seldom leads to a coordinator, and never to one on this machine.
    reqwest::Client::builder()
        .default_headers(headers)
        .connect_timeout(CONNECT_TIMEOUT)
        .no_proxy()
        .redirect(redirects)
        .user_agent(user_agent)
        .build()
        .map_err(|error| Error::Setup(format!("cannot create the HTTP client: {error}")))
}

async fn receive(mut response: Response) -> Result<Answer, Fault> {
    let (status, url) = (response.status().as_u16(), response.url().to_string());
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await? {
        if body.len() + part.len() > MAX_ANSWER_BYTES {
            let why = format!("the answer has more than {MAX_ANSWER_BYTES} bytes");
            return Err(Fault::no_answer(why, false));
        }
        body.extend_from_slice(&part);
    }
    Ok(Answer { status, body, url })
}

fn parse_retry_after(value: &HeaderValue) -> Option<Duration> {
    value.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

fn to_base(text: &str) -> Result<Url, Error> {
    parse_url(text).map_err(|why| Error::Setup(format!("{text} is not the URL of a coordinator: {why}")))
}

/// Parses the URL of a coordinator, which may omit the scheme.
pub fn parse_url(text: &str) -> Result<Url, String> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&with_scheme).map_err(|error| error.to_string())?;
    match (url.scheme(), url.host_str()) {
        ("http", Some(_)) => Ok(url),
        ("http", None) => Err("it names no host".to_owned()),
        (other, _) => Err(format!("{other} is not supported, only http")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_may_omit_the_scheme() {
        assert_eq!(parse_url("127.0.0.1:8980").unwrap().as_str(), "http://127.0.0.1:8980/");
        assert_eq!(parse_url("http://host/lessor").unwrap().as_str(), "http://host/lessor");
    }

    #[test]
    fn a_url_that_cannot_be_used_is_refused() {
        assert!(parse_url("https://host").unwrap_err().contains("https is not supported"));
        for url in ["https://host", "ftp://host", "http://", "http://host:port", "x y"] {
            assert!(matches!(to_base(url), Err(Error::Setup(_))), "{url}");
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
