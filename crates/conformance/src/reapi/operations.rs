//! Operations: executions by their names.

use std::time::{Duration, Instant};

use bazel_remote_apis::build::bazel::remote::execution::v2::execution_stage::Value as Stage;
use bazel_remote_apis::google::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest, Operation,
    WaitOperationRequest,
};
use bazel_remote_apis::google::protobuf::Duration as Span;
use tonic::{Code, Status};

use super::client::Remote;
use super::waiting::response;
use crate::finding::must;
use crate::grpc::{done, refused};
use crate::{Check, Finding, Subject};

/// Pages of operations that are looked through.
const MAX_PAGES: usize = 200;
/// How soon a command that was cancelled is to end.
const MAX_CANCEL: Duration = Duration::from_secs(12);

pub(super) const CHECKS: &[Check] = &[
    Check::new(&["R42"], "GetOperation, WaitOperation and ListOperations know an execution", |s| {
        Box::pin(known(s))
    }),
    Check::new(&["R42"], "DeleteOperation forgets an operation", |s| Box::pin(deleted(s))),
    Check::new(&["R42", "R30"], "CancelOperation ends the command, with CANCELLED", |s| {
        Box::pin(cancelled(s))
    }),
    Check::new(&["R42", "R44"], "cancelling one of two equal executions leaves the other", |s| {
        Box::pin(one_of_two(s))
    }),
    Check::new(&["R42"], "what is no operation is NOT_FOUND", |s| Box::pin(unknown(s))),
];

async fn get(remote: &Remote<'_>, name: &str) -> Result<Operation, Status> {
    let asked = GetOperationRequest { name: name.to_owned() };
    remote.operations().get_operation(remote.scoped(asked)).await.map(tonic::Response::into_inner)
}

async fn cancel(remote: &Remote<'_>, name: &str) -> Result<(), Status> {
    let asked = CancelOperationRequest { name: name.to_owned() };
    remote.operations().cancel_operation(remote.scoped(asked)).await.map(|_| ())
}

async fn known(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action("sleep 1; exit 9").await?;
    let mut waiting = remote.begin(remote.ask(&action)).await?;
    let name = waiting.first().await?.name;
    let answer = done("GetOperation", get(&remote, &name).await.map(tonic::Response::new))?;
    must(answer.name == name && !answer.done, || format!("GetOperation of what runs answered {answer:?}"))?;
    listed(&remote, &name).await?;
    let asked = WaitOperationRequest { name: name.clone(), timeout: Some(Span { seconds: 10, nanos: 0 }) };
    let answer = done("WaitOperation", remote.operations().wait_operation(remote.scoped(asked)).await)?;
    let code = response(&answer)?.result.map(|result| result.exit_code);
    must(code == Some(9), || format!("WaitOperation told `exit 9` as {code:?}"))?;
    let answer = done("GetOperation", get(&remote, &name).await.map(tonic::Response::new))?;
    must(answer.done, || "GetOperation says that what is over is not done".into())
}

async fn listed(remote: &Remote<'_>, name: &str) -> Result<(), Finding> {
    let mut page_token = String::new();
    for _ in 0..MAX_PAGES {
        let asked = ListOperationsRequest {
            name: format!("{}operations", remote.prefix()),
            page_token,
            ..ListOperationsRequest::default()
        };
        let answer = done("ListOperations", remote.operations().list_operations(remote.scoped(asked)).await)?;
        if answer.operations.iter().any(|operation| operation.name == name) {
            return Ok(());
        }
        page_token = answer.next_page_token;
        if page_token.is_empty() {
            return Err(Finding::broken(format!("ListOperations does not know {name}")));
        }
    }
    Err(Finding::Skipped("there are too many operations to look through".into()))
}

async fn deleted(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    // One that fails is not cached, so that its operation is one of an execution.
    let action = remote.action("exit 2").await?;
    let mut waiting = remote.begin(remote.ask(&action)).await?;
    let name = waiting.first().await?.name;
    waiting.end().await?;
    let asked = DeleteOperationRequest { name: name.clone() };
    done("DeleteOperation", remote.operations().delete_operation(remote.scoped(asked)).await)?;
    refused("GetOperation of what was deleted", get(&remote, &name).await, &[Code::NotFound])
}

async fn cancelled(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action("sleep 18").await?;
    let mut waiting = remote.begin(remote.ask(&action)).await?;
    let name = waiting.until(Stage::Executing).await?.name;
    let start = Instant::now();
    done("CancelOperation", cancel(&remote, &name).await.map(tonic::Response::new))?;
    let status = waiting.end().await?.status.unwrap_or_default();
    must(status.code == Code::Cancelled as i32, || {
        format!("an execution that was cancelled ended with code {} {:?}", status.code, status.message)
    })?;
    must(start.elapsed() < MAX_CANCEL, || "the command was not ended".into())?;
    refused("GetActionResult of what was cancelled", remote.cached(&action).await, &[Code::NotFound])
}

async fn one_of_two(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let action = remote.action("sleep 2; exit 4").await?;
    let mut stays = remote.begin(remote.ask(&action)).await?;
    let mut leaves = remote.begin(remote.ask(&action)).await?;
    stays.first().await?;
    let name = leaves.first().await?.name;
    done("CancelOperation", cancel(&remote, &name).await.map(tonic::Response::new))?;
    let status = leaves.end().await?.status.unwrap_or_default();
    must(status.code == Code::Cancelled as i32, || {
        format!("the one that was cancelled ended with code {}", status.code)
    })?;
    let answer = stays.end().await?;
    let code = answer.result.map(|result| result.exit_code);
    must(code == Some(4), || format!("the other one ended with {code:?} and {:?}", answer.status))
}

async fn unknown(subject: &Subject) -> Result<(), Finding> {
    let remote = Remote::of(subject);
    remote.needs_execution().await?;
    let name = format!("{}operations/{}", remote.prefix(), subject.name("nobody"));
    refused("GetOperation", get(&remote, &name).await, &[Code::NotFound])?;
    refused("CancelOperation", cancel(&remote, &name).await, &[Code::NotFound])
}
