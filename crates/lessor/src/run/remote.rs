//! The connection to the server: content store, executions and operations.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::capabilities_client::CapabilitiesClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    GetCapabilitiesRequest, RequestMetadata, ToolDetails,
};
use bazel_remote_apis::google::longrunning::CancelOperationRequest;
use bazel_remote_apis::google::longrunning::operations_client::OperationsClient;
use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request, Status};
use worker::cas::{GrpcCas, GrpcCasOptions, Scoped};

use super::error::Error;
use super::options::Options;
use crate::client;
use crate::client::show::text::clean;

/// How long the server may take to say who it is, or that an operation is cancelled.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest answer: a result that names many outputs.
const MAX_ANSWER_BYTES: usize = 64 << 20;
const METADATA_HEADER: &str = "build.bazel.remote.execution.v2.requestmetadata-bin";

pub(super) struct Remote {
    pub cas: GrpcCas,
    pub instance: String,
    pub url: String,
    metadata: Vec<u8>,
    /// The operation that is under way, for whoever has to cancel it.
    operation: Mutex<Option<String>>,
}

impl Remote {
    /// Finds out whether anybody is there who executes. Nothing is repeated here: a person who waits for a server that
    /// was never started would wait for nothing.
    pub(super) async fn connect(options: &Options) -> Result<Remote, Error> {
        let url = options.connection.url.as_str().trim_end_matches('/').to_owned();
        let tenant = options.connection.tenant.clone();
        let cas_options = GrpcCasOptions { tenant: Some(tenant), ..GrpcCasOptions::default() };
        let cas =
            GrpcCas::new(&url, &cas_options).map_err(|error| client::Error::Usage(error.to_string()))?;
        let instance = options.instance_name();
        let metadata = RequestMetadata {
            tool_details: Some(ToolDetails {
                tool_name: "lessor run".to_owned(),
                tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            }),
            ..RequestMetadata::default()
        };
        let metadata = metadata.encode_to_vec();
        let remote = Remote { cas, instance, url, metadata, operation: Mutex::default() };
        remote.check().await?;
        Ok(remote)
    }

    async fn check(&self) -> Result<(), Error> {
        let asked = GetCapabilitiesRequest { instance_name: self.instance.clone() };
        let mut client = CapabilitiesClient::new(self.cas.channel());
        let response = tokio::time::timeout(CALL_TIMEOUT, client.get_capabilities(Request::new(asked))).await;
        let response = response.unwrap_or_else(|_| Err(Status::unavailable("it does not answer")));
        let url = self.url.clone();
        let response = match response {
            Ok(response) => response.into_inner(),
            Err(status) => match status.code() {
                Code::Unavailable => {
                    return Err(client::Error::NoServer { url, why: cause(&status) }.into());
                }
                // What speaks another protocol breaks off in one of these ways.
                Code::Unimplemented | Code::Unknown | Code::Internal | Code::Cancelled => {
                    let why = cause(&status);
                    let message = format!("no server of the Remote Execution API answers at {url}: {why}");
                    return Err(Error::NotRun { code: status.code(), message });
                }
                _ => return Err(status.into()),
            },
        };
        if response.execution_capabilities.is_some_and(|can| can.exec_enabled) {
            Ok(())
        } else {
            let message = format!("{url} is a cache only and executes nothing");
            Err(Error::NotRun { code: Code::Unimplemented, message })
        }
    }

    pub(super) fn execution(&self) -> ExecutionClient<Scoped> {
        ExecutionClient::new(self.cas.channel()).max_decoding_message_size(MAX_ANSWER_BYTES)
    }

    /// A call that says whose it is.
    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert_bin(METADATA_HEADER, MetadataValue::from_bytes(&self.metadata));
        request
    }

    pub(super) fn operation(&self) -> Option<String> {
        self.operation.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_operation(&self, name: Option<&str>) {
        *self.operation.lock().unwrap_or_else(PoisonError::into_inner) = name.map(str::to_owned);
    }

    /// Says that nobody waits for the operation any more, if there is one.
    pub(super) async fn cancel(&self) -> Result<(), Status> {
        let Some(name) = self.operation() else { return Ok(()) };
        let mut client = OperationsClient::new(self.cas.channel());
        let call = client.cancel_operation(self.request(CancelOperationRequest { name }));
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(answer) => answer.map(|_| ()),
            Err(_) => Err(Status::deadline_exceeded("the server does not answer")),
        }
    }
}

/// The innermost reason, which says most.
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
