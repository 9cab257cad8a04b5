//! HTTP requests to the server.
//!
//! Every request of these commands may be repeated without harm: reads, a cancel, a redrive and a queue's configuration
//! by contract, orders for workers too, a submit by its dedup key. So a request without an answer is retried for a bounded time.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt::Display;
use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable};
use lessor_sdk::protocol::{self, ANSWER_TIMEOUT, Address, Fault, Request, Transport};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::connection::Connection;
use super::error::{Error, is_about_certificates};
use super::show::{Output, note};

/// How long a request is retried: enough for a server to restart.
const RETRY_FOR: Duration = Duration::from_secs(15);
const DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(100))
    .with_max_delay(Duration::from_secs(2))
    .without_max_times();

pub(super) struct Client {
    transport: Transport,
    /// Whether the server has accepted a connection. Until then a refused connection means that there is no server, and
    /// retries would only keep the user waiting; afterwards it means a restart.
    was_reached: Cell<bool>,
}

/// The server's answer to a request that succeeded.
pub(super) struct Answer(protocol::Answer);

impl Client {
    pub(super) fn new(connection: &Connection) -> anyhow::Result<Client> {
        Client::in_scope(connection, connection.tenant.as_deref().unwrap_or_default(), &connection.workspace)
    }

    fn in_scope(connection: &Connection, tenant: &str, workspace: &str) -> anyhow::Result<Client> {
        let credentials = connection.credentials.clone().credentials();
        let credentials = credentials.map_err(|error| Error::Usage(error.to_string()))?;
        let transport = Transport::new(&Address {
            url: Some(connection.url.to_string()),
            tenant: Some(tenant.to_owned()),
            workspace: Some(workspace.to_owned()),
            credentials,
            user_agent: Some(concat!("lessor/", env!("CARGO_PKG_VERSION"))),
        })
        .map_err(Error::from)?;
        Ok(Client { transport, was_reached: Cell::new(false) })
    }

    /// A client that names no scope, as calls of the operator require.
    pub(super) fn for_operator(connection: &Connection) -> anyhow::Result<Client> {
        // An empty name is sent as none, whatever the environment says.
        Client::in_scope(connection, "", "")
    }

    pub(super) async fn get(&self, path: &[&str], query: &impl Serialize) -> Result<Answer, Error> {
        self.get_waiting(path, query, Duration::ZERO).await
    }

    /// A read whose answer the server may hold back for `wait`.
    pub(super) async fn get_waiting(
        &self,
        path: &[&str],
        query: &impl Serialize,
        wait: Duration,
    ) -> Result<Answer, Error> {
        self.send(self.transport.get(path, query)?, wait + ANSWER_TIMEOUT).await
    }

    pub(super) async fn post(&self, path: &[&str], body: &impl Serialize) -> Result<Answer, Error> {
        self.post_waiting(path, body, Duration::ZERO).await
    }

    /// A POST whose answer the server may hold back for `wait`.
    pub(super) async fn post_waiting(
        &self,
        path: &[&str],
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<Answer, Error> {
        self.send(self.transport.post(path, body)?, wait + ANSWER_TIMEOUT).await
    }

    pub(super) async fn put(&self, path: &[&str], body: &impl Serialize) -> Result<Answer, Error> {
        self.send(self.transport.put(path, body)?, ANSWER_TIMEOUT).await
    }

    /// Sends a request until an answer settles it, or the time for retries is over.
    async fn send(&self, request: Request, timeout: Duration) -> Result<Answer, Error> {
        let mut first_failure = None;
        let mut is_noted = false;
        let try_once = || self.try_once(&request, timeout);
        let answered = try_once
            .retry(DELAYS)
            .when(|failed| !failed.is_settled)
            .adjust(|failed: &Failed, delay| {
                let since = first_failure.get_or_insert_with(Instant::now);
                let delay = failed.retry_after.or(delay)?;
                (since.elapsed().saturating_add(delay) <= RETRY_FOR).then_some(delay)
            })
            .notify(|_, _| {
                if !std::mem::replace(&mut is_noted, true) {
                    note("lessor: no answer yet, asking again");
                }
            });
        answered.await.map_err(|failed| failed.error)
    }

    async fn try_once(&self, request: &Request, timeout: Duration) -> Result<Answer, Failed> {
        let tried = self.transport.try_once(request, timeout).await;
        if tried.as_ref().map_or_else(|fault| fault.answer.is_some(), |_| true) {
            self.was_reached.set(true);
        }
        match tried {
            Ok(answer) if answer.is_success() => Ok(Answer(answer)),
            Ok(answer) => Err(Failed { error: answer.refusal().into(), is_settled: true, retry_after: None }),
            Err(Fault { answer: Some(answer), retry_after, .. }) => {
                // Retried if the server is full or not serving, or a gateway does not reach it.
                let is_settled = !matches!(answer.status, 429 | 502..=504);
                Err(Failed { error: answer.refusal().into(), is_settled, retry_after })
            }
            Err(Fault { why, is_connect, .. }) => {
                let url = self.transport.url().to_owned();
                let no_server = is_connect && !self.was_reached.get();
                let is_untrusted = is_about_certificates(&why);
                let error = if is_untrusted {
                    Error::Untrusted { url, why }
                } else if no_server {
                    Error::NoServer { url, why }
                } else {
                    Error::Silent { url, seconds: RETRY_FOR.as_secs(), why }
                };
                Err(Failed { error, is_settled: no_server || is_untrusted, retry_after: None })
            }
        }
    }
}

impl Answer {
    pub(super) fn status(&self) -> u16 {
        self.0.status
    }

    pub(super) fn text(&self) -> Cow<'_, str> {
        self.0.text()
    }

    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, Error> {
        Ok(self.0.parse()?)
    }

    /// Prints the answer: with `json` as the server sent it, otherwise as text for people.
    pub(super) fn print<T: DeserializeOwned, D: Display>(
        &self,
        json: bool,
        render: impl FnOnce(T) -> D,
    ) -> anyhow::Result<()> {
        if json { Output::new().line(self.text()) } else { Output::new().print(render(self.parse()?)) }
    }
}

/// A try without an answer, or with one that refuses the request.
struct Failed {
    error: Error,
    /// Whether a retry would change nothing.
    is_settled: bool,
    retry_after: Option<Duration>,
}
