//! Calls of an admin, each sent once: a key that was created without an answer must not be created again.

use anyhow::Result;
use lessor_sdk::protocol::{ANSWER_TIMEOUT, Address, Answer, Fault, Request, Transport, Url};
use serde::Serialize;

use crate::client::Error;
use crate::client::connection::CredentialOptions;

pub(super) struct Admin(Transport);

impl Admin {
    pub(super) fn new(url: &Url, credentials: CredentialOptions) -> Result<Admin> {
        let credentials = credentials.credentials().map_err(|error| Error::Usage(error.to_string()))?;
        Ok(Admin(Transport::new(&Address {
            url: Some(url.to_string()),
            // An empty name is sent as none, whatever the environment says.
            tenant: Some(String::new()),
            workspace: Some(String::new()),
            credentials,
            user_agent: Some(concat!("lessor/", env!("CARGO_PKG_VERSION"))),
        })?))
    }

    pub(super) async fn get(&self, path: &[&str]) -> Result<Answer, Error> {
        self.send(self.0.get(path, &())?).await
    }

    pub(super) async fn post(&self, path: &[&str], body: &impl Serialize) -> Result<Answer, Error> {
        self.send(self.0.post(path, body)?).await
    }

    pub(super) async fn delete(&self, path: &[&str]) -> Result<Answer, Error> {
        self.send(self.0.delete(path)).await
    }

    async fn send(&self, request: Request) -> Result<Answer, Error> {
        let url = || self.0.url().to_owned();
        match self.0.try_once(&request, ANSWER_TIMEOUT).await {
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
