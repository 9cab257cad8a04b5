//! The connection to the server: content store, executions and operations.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bazel_remote_apis::google::longrunning::CancelOperationRequest;
use execution::reapi::{RequestMetadata, ToolDetails};
use prost::Message;
use reapi_client::Client;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};

use super::error::Error;
use super::options::Options;
use crate::client;
use crate::client::show::text::clean;

/// How long the server may take to answer a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
const METADATA_HEADER: &str = "build.bazel.remote.execution.v2.requestmetadata-bin";

pub(super) struct Remote {
    pub client: Client,
    pub instance: String,
    pub url: String,
    metadata: Vec<u8>,
    /// Whether an execution was requested, which may run before the name of its operation is known.
    is_requested: AtomicBool,
    /// The running operation, to be cancelled on a signal.
    operation: watch::Sender<Option<String>>,
}

impl Remote {
    /// Checks that the server executes. Nothing is repeated here, because the server may never have been started.
    pub(super) async fn connect(options: &Options) -> Result<Remote, Error> {
        let url = options.connection.url.as_str().trim_end_matches('/').to_owned();
        let tenant = options.connection.tenant.clone();
        let usage = |error: &dyn std::fmt::Display| client::Error::Usage(error.to_string());
        let credentials = options.connection.credentials.clone().credentials();
        let connector = credentials.and_then(|credentials| credentials.connector(&options.connection.url));
        let connector = connector.map_err(|error| usage(&error))?;
        let client = Client::new(&url, &reapi_client::Options { tenant, connector, ..Default::default() })
            .map_err(|error| usage(&error))?;
        let instance = options.instance_name();
        let metadata = RequestMetadata {
            tool_details: Some(ToolDetails {
                tool_name: "lessor run".to_owned(),
                tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            }),
            ..RequestMetadata::default()
        };
        let metadata = metadata.encode_to_vec();
        let (is_requested, operation) = (AtomicBool::new(false), watch::Sender::default());
        let remote = Remote { client, instance, url, metadata, is_requested, operation };
        remote.check().await?;
        Ok(remote)
    }

    async fn check(&self) -> Result<(), Error> {
        let url = self.url.clone();
        let capabilities = match self.client.capabilities(&self.instance, CALL_TIMEOUT).await {
            Ok(capabilities) => capabilities,
            Err(status) => match status.code() {
                _ if client::is_about_certificates(&cause(&status)) => {
                    return Err(client::Error::Untrusted { url, why: cause(&status) }.into());
                }
                Code::Unavailable => {
                    return Err(client::Error::NoServer { url, why: cause(&status) }.into());
                }
                // A server of another protocol ends the call in one of these ways.
                Code::Unimplemented | Code::Unknown | Code::Internal | Code::Cancelled => {
                    let why = cause(&status);
                    let message = format!("no server of the Remote Execution API answers at {url}: {why}");
                    return Err(Error::NotRun { code: status.code(), message });
                }
                _ => return Err(status.into()),
            },
        };
        if capabilities.execution_capabilities.is_some_and(|can| can.exec_enabled) {
            Ok(())
        } else {
            let message = format!("{url} is a cache only and executes nothing");
            Err(Error::NotRun { code: Code::Unimplemented, message })
        }
    }

    /// A request with the metadata of this tool.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert_bin(METADATA_HEADER, MetadataValue::from_bytes(&self.metadata));
        request
    }

    pub(super) fn operation(&self) -> Option<String> {
        self.operation.borrow().clone()
    }

    /// An execution is about to be requested.
    pub(super) fn set_requested(&self) {
        self.is_requested.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_operation(&self, name: Option<&str>) {
        self.is_requested.store(name.is_some(), Ordering::Relaxed);
        self.operation.send_replace(name.map(str::to_owned));
    }

    /// Waits for the operation of an execution that was requested. The server names it in its first answer.
    pub(super) async fn operation_named(&self) {
        if self.is_requested.load(Ordering::Relaxed) {
            let mut operation = self.operation.subscribe();
            let _ = timeout(CALL_TIMEOUT, operation.wait_for(Option::is_some)).await;
        }
    }

    /// Cancels the operation, if there is one.
    pub(super) async fn cancel(&self) -> Result<(), Status> {
        let Some(name) = self.operation() else { return Ok(()) };
        let mut client = self.client.operations();
        let call = client.cancel_operation(self.request(CancelOperationRequest { name }));
        match timeout(CALL_TIMEOUT, call).await {
            Ok(answer) => answer.map(|_| ()),
            Err(_) => Err(Status::deadline_exceeded("the server does not answer")),
        }
    }
}

/// The innermost cause, which is the most useful.
pub(crate) fn cause(status: &Status) -> String {
    let mut error: &dyn std::error::Error = status;
    while let Some(source) = error.source() {
        error = source;
    }
    match error.downcast_ref::<Status>() {
        Some(status) => clean(status.message()),
        None => clean(&error.to_string()),
    }
}
