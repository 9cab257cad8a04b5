//! The calls of the worker service, each in a file of its own.

use std::net::IpAddr;

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::grpc::worker_scheduler_server::WorkerScheduler;
use wire::grpc::*;

use super::{heartbeat, lease, register, report, submit, work};
use crate::app::App;
use crate::convert::scope;
use crate::edge::operator::Ends;

pub(super) struct Service {
    pub app: App,
}

/// Implements the service: each call finds its scope and is handed on.
macro_rules! calls {
    ($($call:ident($Request:ty) -> $Response:ty = |$app:ident, $scope:ident, $request:ident| $answer:expr;)*) => {
        #[tonic::async_trait]
        impl WorkerScheduler for Service {
            type WorkStream = ReceiverStream<Result<WorkResponse, Status>>;

            $(async fn $call(&self, $request: Request<$Request>) -> Result<Response<$Response>, Status> {
                let ($app, $scope) = (&self.app, scope::of($request.metadata().as_ref())?);
                $answer.map(Response::new)
            })*
        }
    };
}

calls! {
    register_worker(RegisterWorkerRequest) -> RegisterWorkerResponse =
        |app, scope, request| register::register(app, &scope, request.get_ref(), peer(&request)).await;
    lease_task(LeaseTaskRequest) -> LeaseTaskResponse =
        |app, scope, request| lease::lease(app, scope, &request).await;
    update_task_status(UpdateTaskStatusRequest) -> UpdateTaskStatusResponse =
        |app, scope, request| report::update(app, &scope, request.get_ref()).await;
    report_heartbeat(HeartbeatRequest) -> HeartbeatResponse =
        |app, scope, request| heartbeat::heartbeat(app, scope, request.get_ref()).await;
    unregister_worker(UnregisterWorkerRequest) -> UnregisterWorkerResponse =
        |app, scope, request| register::unregister(app, scope, request.get_ref(), peer(&request)).await;
    submit_tasks(SubmitTasksRequest) -> SubmitTasksResponse =
        |app, scope, request| submit::submit(app, &scope, request.into_inner()).await;
    work(Streaming<WorkRequest>) -> Self::WorkStream =
        |app, scope, request| work::open(app, scope, request);
}

/// The address of the caller.
pub(super) fn peer<T>(request: &Request<T>) -> Option<IpAddr> {
    request.extensions().get::<Ends>().map(|ends| ends.peer.ip().to_canonical())
}
