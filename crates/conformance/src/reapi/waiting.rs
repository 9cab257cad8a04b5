//! A client that waits for an operation.

use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::execution_stage::Value as Stage;
use bazel_remote_apis::build::bazel::remote::execution::v2::{ExecuteOperationMetadata, ExecuteResponse};
use bazel_remote_apis::google::longrunning::{Operation, operation};
use prost::Message;
use tokio::time::timeout;
use tonic::Streaming;

use crate::Finding;
use crate::finding::must;
use crate::grpc::format_status;

/// How long the first message may take, which is to come at once.
const MAX_FIRST: Duration = Duration::from_secs(10);

pub(super) struct Waiting {
    stream: Streaming<Operation>,
}

impl Waiting {
    pub(super) fn on(stream: Streaming<Operation>) -> Waiting {
        Waiting { stream }
    }

    /// The next message; none once the stream has ended.
    pub(super) async fn next(&mut self) -> Result<Option<Operation>, Finding> {
        let answer = self.stream.message().await;
        answer.map_err(|status| {
            Finding::broken(format!("the stream of an operation broke: {}", format_status(&status)))
        })
    }

    /// The first message, which comes at once.
    pub(super) async fn first(&mut self) -> Result<Operation, Finding> {
        let first = timeout(MAX_FIRST, self.next()).await;
        let first = first.map_err(|_| {
            Finding::broken(format!("no operation was told within {} s", MAX_FIRST.as_secs()))
        })??;
        let first = first.ok_or_else(|| Finding::broken("the stream ended without an operation"))?;
        must(!first.name.is_empty(), || "the operation has no name".into())?;
        Ok(first)
    }

    /// Waits until the operation is in this stage.
    pub(super) async fn until(&mut self, wanted: Stage) -> Result<Operation, Finding> {
        while let Some(operation) = self.next().await? {
            must(!operation.done, || format!("the operation ended before it was {wanted:?}"))?;
            if stage(&operation)? == wanted {
                return Ok(operation);
            }
        }
        Err(Finding::broken(format!("the stream ended before the operation was {wanted:?}")))
    }

    /// All further messages.
    pub(super) async fn all(mut self) -> Result<Vec<Operation>, Finding> {
        let mut all = Vec::new();
        while let Some(operation) = self.next().await? {
            all.push(operation);
        }
        Ok(all)
    }

    /// Waits for the end and gives what was answered.
    pub(super) async fn end(self) -> Result<ExecuteResponse, Finding> {
        match self.all().await?.last() {
            Some(last) => response(last),
            None => Err(Finding::broken("the stream ended without an operation")),
        }
    }
}

/// What an operation that is over says.
pub(super) fn response(operation: &Operation) -> Result<ExecuteResponse, Finding> {
    must(operation.done, || "the stream ended with an operation that is not done".into())?;
    match &operation.result {
        Some(operation::Result::Response(any)) => ExecuteResponse::decode(&any.value[..])
            .map_err(|error| Finding::broken(format!("the response is no ExecuteResponse: {error}"))),
        Some(operation::Result::Error(error)) => {
            Err(Finding::broken(format!("Operation.error must never be set, and is {error:?}")))
        }
        None => Err(Finding::broken("an operation that is done has no response")),
    }
}

pub(super) fn metadata(operation: &Operation) -> Result<ExecuteOperationMetadata, Finding> {
    let any = operation.metadata.as_ref().ok_or_else(|| Finding::broken("an operation has no metadata"))?;
    must(any.type_url.ends_with("build.bazel.remote.execution.v2.ExecuteOperationMetadata"), || {
        format!("the metadata is a {}", any.type_url)
    })?;
    ExecuteOperationMetadata::decode(&any.value[..])
        .map_err(|error| Finding::broken(format!("the metadata cannot be read: {error}")))
}

pub(super) fn stage(operation: &Operation) -> Result<Stage, Finding> {
    Ok(metadata(operation)?.stage())
}
