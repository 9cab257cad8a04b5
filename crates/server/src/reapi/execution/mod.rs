//! Execution: turns actions into tasks, and tasks into operations.

mod execute;
pub(super) mod follow;
mod in_flight;
pub(super) mod inputs;
mod no_worker_timer;
pub(super) mod operation;
pub(crate) mod operation_name;
mod output_check;
pub(super) mod outputs;
mod pins;
mod platform;
mod shared_key;

pub(super) use in_flight::{InFlightExecutions, action_of};
pub(super) use output_check::{is_live, to_problem};
pub(crate) use pins::PinGuard;
pub(super) use pins::Pins;

use std::sync::Arc;

use tonic::{Request, Response, Status};
use wire::reapi::execution_server::Execution;

use super::Reapi;
use super::inline_outputs::InlineOutputs;
use super::messages::{ExecuteRequest, WaitExecutionRequest};
use follow::OperationStream;

#[tonic::async_trait]
impl Execution for Reapi {
    type ExecuteStream = OperationStream;

    async fn execute(&self, request: Request<ExecuteRequest>) -> Result<Response<OperationStream>, Status> {
        execute::execute(self, &request).await.map(Response::new)
    }

    type WaitExecutionStream = OperationStream;

    async fn wait_execution(
        &self,
        request: Request<WaitExecutionRequest>,
    ) -> Result<Response<OperationStream>, Status> {
        let operation: Arc<str> = Arc::from(request.get_ref().name.as_str());
        let known = self.known(request.metadata(), &operation).await?;
        let stream =
            follow::follow(self.clone(), known.scope, known.task, operation, InlineOutputs::default());
        Ok(Response::new(stream))
    }
}
