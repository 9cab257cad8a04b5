//! HTTP requests to the coordinator, retried after faults.
//!
//! Every request may be repeated without harm: polls by their request id, reports and heartbeats by contract, submits by
//! their dedup key. A repeat has the same body, byte for byte.

use std::borrow::Cow;
use std::time::Duration;

use backon::Retryable;
use bytes::Bytes;
pub use credentials::parse_url;
use credentials::{Connector, Credentials};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Response};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use url::Url;
use wire::{Problem, TENANT_HEADER, WORKSPACE_HEADER};

use crate::backoff::{at_least, limited};
use crate::{Error, clock};

const DEFAULT_URL: &str = "http://127.0.0.1:8980";
const DEFAULT_USER_AGENT: &str = concat!("lessor-rust/", env!("CARGO_PKG_VERSION"));
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an unused connection stays open.
const MAX_IDLE: Duration = Duration::from_secs(90);
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
    pub credentials: Credentials,
    pub user_agent: Option<&'static str>,
}

/// The connections to one coordinator; a clone shares them. It uses no proxy, which seldom leads to a coordinator, and follows
/// no redirect, because keys and task tokens are for the coordinator alone.
#[derive(Clone, Debug)]
pub struct Transport {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    headers: HeaderMap,
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
        let connector = address.credentials.clone().or_env().and_then(|given| given.connector(&base));
        let connector = connector.map_err(|error| Error::Setup(error.to_string()))?;
        let mut headers = HeaderMap::new();
        if let Some(authorization) = connector.authorization() {
            headers.insert(AUTHORIZATION, secret(&authorization)?);
        }
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
        headers.insert(USER_AGENT, HeaderValue::from_static(user_agent));
        Ok(Transport { http: http_client(&connector)?, headers, base })
    }

    /// For push targets, which learn the coordinator's URL from each envelope. Task tokens carry the scope and are the only
    /// key that is sent.
    pub fn unscoped(credentials: &Credentials) -> Result<Transport, Error> {
        let connector = credentials.clone().or_env().and_then(|given| given.for_callbacks());
        let connector = connector.map_err(|error| Error::Setup(error.to_string()))?;
        let headers = HeaderMap::from_iter([(USER_AGENT, HeaderValue::from_static(DEFAULT_USER_AGENT))]);
        Ok(Transport { http: http_client(&connector)?, headers, base: to_base(DEFAULT_URL)? })
    }

    /// The same connection pool, for another coordinator.
    pub fn to(&self, url: &str) -> Result<Transport, Error> {
        Ok(Transport { base: to_base(url)?, ..self.clone() })
    }

    pub fn url(&self) -> &str {
        self.base.as_str().trim_end_matches('/')
    }

    pub fn get(&self, path: &[&str], query: &impl Serialize) -> Result<Request, Error> {
        let query = serde_urlencoded::to_string(query).map_err(|error| Error::Setup(error.to_string()))?;
        let mut url = self.url_of(path);
        url.set_query(Some(query.as_str()).filter(|query| !query.is_empty()));
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
        let late = |_| Err(Fault::no_answer("the answer did not come in time".to_owned(), false));
        let (retry_after, answer) =
            tokio::time::timeout(timeout, self.exchange(request)).await.unwrap_or_else(late)?;
        if is_undecided(answer.status) && answer.problem().is_none_or(|problem| problem.verdict.is_none()) {
            let why = answer.refusal().to_string();
            return Err(Fault { why, retry_after, is_connect: false, answer: Some(answer) });
        }
        Ok(answer)
    }
}

impl Transport {
    async fn exchange(&self, request: &Request) -> Result<(Option<Duration>, Answer), Fault> {
        let mut sent = hyper::Request::new(Full::from(request.body.clone().unwrap_or_default()));
        *sent.method_mut() = request.method.clone();
        let uri = request.url.as_str().parse();
        *sent.uri_mut() = uri.map_err(|error| Fault::no_answer(format!("{error}"), false))?;
        let headers = sent.headers_mut();
        headers.clone_from(&self.headers);
        if request.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(authorization) = &request.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let response = self.http.request(sent).await?;
        let retry_after = response.headers().get(RETRY_AFTER).and_then(parse_retry_after);
        Ok((retry_after, receive(response, request.url.as_str()).await?))
    }
}

impl Request {
    /// Adds a bearer token.
    pub fn bearer(self, token: &str) -> Result<Request, Error> {
        Ok(Request { authorization: Some(secret(&format!("Bearer {token}"))?), ..self })
    }
}

impl Answer {
    pub(crate) fn new(status: u16, body: Vec<u8>) -> Answer {
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

impl From<ClientError> for Fault {
    fn from(error: ClientError) -> Fault {
        Fault::no_answer(innermost(&error), error.is_connect())
    }
}

impl From<hyper::Error> for Fault {
    fn from(error: hyper::Error) -> Fault {
        Fault::no_answer(innermost(&error), false)
    }
}

/// The innermost error, which is the one that people can do something about.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// A header value that is not shown in debug output.
fn secret(text: &str) -> Result<HeaderValue, Error> {
    let value = HeaderValue::from_str(text);
    let mut value = value.map_err(|_| Error::Setup("the token is not a valid header value".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether an answer with this status decides nothing: the coordinator is too slow, overloaded, broken or not serving,
/// a gateway does not reach it, or the outputs of an execution are not in the content store yet (424).
fn is_undecided(status: u16) -> bool {
    matches!(status, 408 | 424 | 429 | 500 | 502..=504)
}

fn http_client(connector: &Connector) -> Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>, Error> {
    let connector = connector.http(CONNECT_TIMEOUT);
    let connector =
        connector.map_err(|error| Error::Setup(format!("cannot create the HTTP client: {error}")))?;
    let client = Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(MAX_IDLE)
        .build(connector);
    Ok(client)
}

async fn receive(mut response: Response<Incoming>, url: &str) -> Result<Answer, Fault> {
    let (status, url) = (response.status().as_u16(), url.to_owned());
    let mut body = Vec::new();
    while let Some(frame) = response.frame().await {
        let Ok(part) = frame?.into_data() else { continue };
        if body.len() + part.len() > MAX_ANSWER_BYTES {
            let why = format!("the answer has more than {MAX_ANSWER_BYTES} bytes");
            return Err(Fault::no_answer(why, false));
        }
        body.extend_from_slice(&part);
    }
    Ok(Answer { status, body, url })
}

pub(crate) fn parse_retry_after(value: &HeaderValue) -> Option<Duration> {
    value.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

fn to_base(text: &str) -> Result<Url, Error> {
    parse_url(text).map_err(|why| Error::Setup(format!("{text} is not the URL of a coordinator: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_cannot_be_used_is_refused() {
        for url in ["ftp://host", "http://", "http://host:port", "x y"] {
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
