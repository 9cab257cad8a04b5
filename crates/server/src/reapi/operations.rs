//! Operations: finds, waits for and cancels executions by the names of their operations (R33, R42).

use std::sync::Arc;
use std::time::Duration;

use authority::command::{CancelTask, DetachOperation};
use authority::{Scope, TaskId, TaskState};
use coordinator::{TaskDetail, WaitCondition as Until};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};
use wire::reapi::operations_server::Operations;

use super::execution::follow::{self, OperationState, found, unknown};
use super::execution::operation_name;
use super::inline_outputs::InlineOutputs;
use super::messages::Empty;
use super::messages::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
    ListOperationsResponse, Operation, WaitOperationRequest,
};
use super::operations_page::{self, Start};
use super::{Reapi, instance};
use crate::convert::Problem;
use crate::convert::page_token::List;
use crate::edge::auth::Caller;
use execution::{EXECUTION_QUEUE, ExecutionPayload};

const MAX_WAIT: Duration = Duration::from_secs(60);
/// Most tasks on a page of the list, and the default.
const PAGE: usize = 100;
const CANCEL_REASON: &str = "CancelOperation";

pub struct Known {
    pub scope: Scope,
    pub task: TaskId,
    pub detail: Box<TaskDetail>,
}

impl Reapi {
    /// The operation with this name, if its task knows it.
    pub async fn known(&self, metadata: &MetadataMap, operation: &str) -> Result<Known, Status> {
        let (instance, task) = operation_name::parse(operation).ok_or_else(|| unknown(operation))?;
        let scope = instance::scope(metadata, instance)?;
        let detail = found(self.app.handle.task(scope.clone(), task).await, operation)?;
        if detail.view.task.operations.iter().any(|known| **known == *operation) {
            Ok(Known { scope, task, detail })
        } else {
            Err(unknown(operation))
        }
    }

    /// The same, for a caller who wants to end it.
    async fn known_to_end<T: Sync>(&self, request: &Request<T>, operation: &str) -> Result<Known, Status> {
        let known = self.known(request.metadata(), operation).await?;
        Caller::of(request.extensions()).check_queues([&*known.detail.view.queue.name])?;
        Ok(known)
    }

    async fn view(&self, known: &Known, operation: &str) -> Result<Operation, Status> {
        let state =
            follow::state(self, &known.scope, &known.detail, operation, &InlineOutputs::default()).await?;
        Ok(match state {
            OperationState::Running(operation) | OperationState::Over(operation) => operation,
        })
    }
}

#[tonic::async_trait]
impl Operations for Reapi {
    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        let asked = request.get_ref();
        if !asked.filter.is_empty() {
            return Err(Status::invalid_argument("filter: is not supported; leave it empty"));
        }
        let instance = asked.name.trim_end_matches("operations").trim_matches('/');
        let scope = instance::scope(request.metadata(), instance)?;
        let limit = match usize::try_from(asked.page_size) {
            Ok(0) => PAGE,
            Ok(size) => size.min(PAGE),
            Err(_) => return Err(Status::invalid_argument("page_size: must not be negative")),
        };
        let tokens = &self.app.page_tokens;
        let start = match asked.page_token.as_str() {
            "" => Start::default(),
            token => Start::parse(token, tokens, list(&scope))
                .ok_or_else(|| Status::invalid_argument("page_token: is not one of this list"))?,
        };
        let after = start.after.clone();
        let page =
            self.app.handle.list(scope.clone(), Some(Arc::from(EXECUTION_QUEUE)), None, after, limit).await;
        let page = page.map_err(Problem::from)?;
        let (operations, rest) = operations_page::operations(&page.tasks, &start);
        let next_page_token = match rest {
            Some(start) => Some(operations_page::token(&start, tokens, list(&scope))),
            None => page.next.map(|next| tokens.make(list(&scope), &next)),
        };
        Ok(Response::new(ListOperationsResponse {
            operations,
            next_page_token: next_page_token.unwrap_or_default(),
            ..ListOperationsResponse::default()
        }))
    }

    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let operation = &request.get_ref().name;
        let known = self.known(request.metadata(), operation).await?;
        self.view(&known, operation).await.map(Response::new)
    }

    /// Detaches the operation from its task. The execution goes on.
    async fn delete_operation(
        &self,
        request: Request<DeleteOperationRequest>,
    ) -> Result<Response<Empty>, Status> {
        let operation = &request.get_ref().name;
        let known = self.known_to_end(&request, operation).await?;
        self.detach(&known, operation, &Caller::of(request.extensions())).await?;
        Ok(Response::new(Empty::default()))
    }

    /// Stops the execution, unless others wait for it too.
    async fn cancel_operation(
        &self,
        request: Request<CancelOperationRequest>,
    ) -> Result<Response<Empty>, Status> {
        let (operation, caller) = (&request.get_ref().name, Caller::of(request.extensions()));
        let known = self.known_to_end(&request, operation).await?;
        let digest = ExecutionPayload::decode(&known.detail.view.task.payload)
            .and_then(|payload| payload.action())
            .ok();
        let _dedup_lock = match &digest {
            Some(digest) => Some(self.executions.in_flight.dedup_lock(&known.scope, digest).await),
            None => None,
        };
        // Another client may have joined or left while this call waited for the lock.
        let known = self.known(request.metadata(), operation).await?;
        match known.detail.view.task.operations.len() {
            0 | 1 => {
                let cancel = CancelTask {
                    scope: known.scope.clone(),
                    task: known.task,
                    reason: Arc::from(CANCEL_REASON),
                    by: caller.actor(),
                };
                self.app.handle.cancel(cancel).await.map_err(Problem::from)?;
            }
            _ => self.detach(&known, operation, &caller).await?,
        }
        Ok(Response::new(Empty::default()))
    }

    async fn wait_operation(
        &self,
        request: Request<WaitOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let asked = request.get_ref();
        let mut known = self.known(request.metadata(), &asked.name).await?;
        let wait = match &asked.timeout {
            Some(timeout) => Duration::from_secs(u64::try_from(timeout.seconds).unwrap_or(0)).min(MAX_WAIT),
            None => MAX_WAIT,
        };
        if known.detail.view.task.state() != TaskState::Completed {
            let over = self.app.handle.wait_task(known.scope.clone(), known.task, Until::Final, wait);
            if let Some(over) = self.app.waiting(&known.scope.tenant, wait, over).await? {
                known.detail = found(over, &asked.name)?;
            }
        }
        self.view(&known, &asked.name).await.map(Response::new)
    }
}

fn list(scope: &Scope) -> List<'_> {
    List { scope, queue: Some(EXECUTION_QUEUE), state: None }
}

impl Reapi {
    async fn detach(&self, known: &Known, operation: &str, caller: &Caller) -> Result<(), Status> {
        let (scope, operation, by) = (known.scope.clone(), Arc::from(operation), caller.actor());
        let detach = DetachOperation { scope, task: known.task, operation, by };
        self.app.handle.detach(detach).await.map_err(Problem::from)?;
        Ok(())
    }
}
