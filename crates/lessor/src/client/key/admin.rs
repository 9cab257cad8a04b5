//! Calls of an admin, each sent once: a key that was created without an answer must not be created again.

use anyhow::Result;
use lessor_sdk::protocol::{ANSWER_TIMEOUT, Address, Answer, Fault, Request, Transport};
use reqwest::Url;
use serde::Serialize;

use crate::client::Error;

const KEY_VARIABLE: &str = "LESSOR_API_KEY";

/// The key to authenticate with, if there is one.
fn api_key() -> Option<String> {
    std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty())
}

pub(super) struct Admin {
    transport: Transport,
    key: Option<String>,
}

impl Admin {
    pub(super) fn new(url: &Url) -> Result<Admin> {
        let transport = Transport::new(&Address {
            url: Some(url.to_string()),
            // An empty name is sent as none, whatever the environment says.
            tenant: Some(String::new()),
            workspace: Some(String::new()),
            user_agent: Some(concat!("lessor/", env!("CARGO_PKG_VERSION"))),
        })?;
        Ok(Admin { transport, key: api_key() })
    }

    pub(super) async fn get(&self, path: &[&str]) -> Result<Answer, Error> {
        self.send(self.transport.get(path, &())?).await
    }

    pub(super) async fn post(&self, path: &[&str], body: &impl Serialize) -> Result<Answer, Error> {
        self.send(self.transport.post(path, body)?).await
    }

    pub(super) async fn delete(&self, path: &[&str]) -> Result<Answer, Error> {
        self.send(self.transport.delete(path)).await
    }

    async fn send(&self, request: Request) -> Result<Answer, Error> {
        let request = match &self.key {
            Some(key) => request.bearer(key)?,
            None => request,
        };
        let url = || self.transport.url().to_owned();
        match self.transport.try_once(&request, ANSWER_TIMEOUT).await {
            Ok(answer) if answer.is_success() => Ok(answer),
            Ok(answer) => Err(answer.refusal().into()),
            Err(Fault { answer: Some(answer), .. }) => Err(answer.refusal().into()),
            Err(Fault { why, is_connect: true, .. }) => Err(Error::NoServer { url: url(), why }),
            Err(Fault { why, .. }) => {
                Err(Error::Silent { url: url(), seconds: ANSWER_TIMEOUT.as_secs(), why })
            }
        }
    }
}
