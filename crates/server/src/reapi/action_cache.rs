//! ActionCache: results by the digest of their action (R26, R27).

use blobs::Serve;
use execution::digest;
use tonic::{Request, Response, Status};
use wire::reapi::action_cache_server::ActionCache;

use super::inline_outputs::InlineOutputs;
use super::messages::{ActionResult, GetActionResultRequest, UpdateActionResultRequest};
use super::{Reapi, instance};
use crate::convert::Problem;

#[tonic::async_trait]
impl ActionCache for Reapi {
    async fn get_action_result(
        &self,
        request: Request<GetActionResultRequest>,
    ) -> Result<Response<ActionResult>, Status> {
        let asked = request.get_ref();
        let scope = instance::scope(request.metadata(), &asked.instance_name)?;
        let function = digest::function_from_proto(asked.digest_function)?;
        let action = digest::from_proto(asked.action_digest.as_ref(), function, "action_digest")?;
        let store = self.store(&scope)?;
        let Some(result) = self.content.results.get(&store, &scope, &action, Serve::Any).await? else {
            return Err(Status::not_found(format!("no result of action {action} is known")));
        };
        InlineOutputs::new(asked.inline_stdout, asked.inline_stderr, &asked.inline_output_files)
            .fill(&store, result, action.function)
            .await
            .map(Response::new)
    }

    async fn update_action_result(
        &self,
        request: Request<UpdateActionResultRequest>,
    ) -> Result<Response<ActionResult>, Status> {
        let asked = request.get_ref();
        let scope = instance::scope(request.metadata(), &asked.instance_name)?;
        let function = digest::function_from_proto(asked.digest_function)?;
        let action = digest::from_proto(asked.action_digest.as_ref(), function, "action_digest")?;
        if !self.content.settings.allow_uploads {
            return Err(Problem::updates_disabled().into());
        }
        let Some(result) = &asked.action_result else {
            return Err(Status::invalid_argument("action_result: is missing"));
        };
        self.content.results.upload(&self.store(&scope)?, &scope, &action, result).await?;
        Ok(Response::new(result.clone()))
    }
}
