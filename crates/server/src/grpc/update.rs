//! UpdateTaskStatus: a worker says that it begins, is done or failed, or gives its lease back.

use authority::Scope;
use coordinator::Batch;
use tonic::Status;
use wire::grpc::{UpdateTaskStatusRequest, UpdateTaskStatusResponse};

use super::{reference, report};
use crate::app::App;
use crate::convert::Problem;

pub(super) async fn update(
    app: &App,
    scope: &Scope,
    request: &UpdateTaskStatusRequest,
) -> Result<UpdateTaskStatusResponse, Status> {
    let lease = if request.lease_id.is_empty() {
        reference::by_grants(app, scope, request).await?
    } else {
        reference::by_lease_id(app, scope, &request.worker_id, request).map_err(Problem::on_report)?
    };
    let decided = async {
        let mut items = Batch::new();
        let asked = report::items(lease, request, &mut items)?;
        let answers = app.handle.decide(items).await?;
        report::answer(asked, &mut answers.into_iter())
    };
    Ok(decided.await.map_err(Problem::on_report)?)
}
