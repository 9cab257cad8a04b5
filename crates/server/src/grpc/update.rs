//! UpdateTaskStatus: a worker says that it begins, is done or failed, or gives its lease back.

use authority::Scope;
use tonic::Status;
use wire::grpc::{UpdateTaskStatusRequest, UpdateTaskStatusResponse};

use super::{reference, report};
use crate::app::App;
use crate::convert::problem::Problem;

pub async fn update(
    app: &App,
    scope: &Scope,
    request: &UpdateTaskStatusRequest,
) -> Result<UpdateTaskStatusResponse, Status> {
    let lease = match request.lease_id.is_empty() {
        true => reference::by_grants(app, scope, request).await?,
        false => {
            reference::by_lease_id(app, scope, &request.worker_id, request).map_err(Problem::on_report)?
        }
    };
    let decided = async {
        let mut steps = Vec::with_capacity(2);
        let asked = report::steps(lease, request, &mut steps)?;
        let answers = app.handle().together(steps).await?;
        report::answer(asked, &mut answers.into_iter())
    };
    Ok(decided.await.map_err(Problem::on_report)?)
}
