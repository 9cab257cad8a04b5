//! The calls of the worker service, each in a file of its own.

use std::net::IpAddr;

use authority::Contract;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::grpc::worker_scheduler_server::WorkerScheduler;
use wire::grpc::*;

use super::{heartbeat, lease, register, report, submit, work};
use crate::app::App;
use crate::convert::scope;
use crate::edge::auth::Caller;
use crate::edge::operator::Context;

pub(super) struct Service {
    pub app: App,
}

/// Implements the service: each call finds its scope and is handed on.
macro_rules! calls {
    ($(
        $call:ident($Request:ty) -> $Response:ty =
            |$app:ident, $scope:ident, $caller:ident, $request:ident| $answer:expr;
    )*) => {
        #[tonic::async_trait]
        impl WorkerScheduler for Service {
            type WorkStream = ReceiverStream<Result<WorkResponse, Status>>;

            $(async fn $call(&self, $request: Request<$Request>) -> Result<Response<$Response>, Status> {
                let ($app, $scope) = (&self.app, scope::of($request.metadata().as_ref())?);
                let $caller = Caller::of($request.extensions());
                $answer.map(Response::new)
            })*
        }
    };
}

calls! {
    register_worker(RegisterWorkerRequest) -> RegisterWorkerResponse = |app, scope, caller, request| {
        let (contract, peer) = (Contract::Scheduler, peer(&request));
        register::register(app, &scope, &caller, request.get_ref(), peer, contract).await
    };
    lease_task(LeaseTaskRequest) -> LeaseTaskResponse =
        |app, scope, caller, request| lease::lease(app, scope, &caller, &request).await;
    update_task_status(UpdateTaskStatusRequest) -> UpdateTaskStatusResponse = |app, scope, caller, request| {
        report::update(app, &scope, &caller, request.get_ref()).await
    };
    report_heartbeat(HeartbeatRequest) -> HeartbeatResponse =
        |app, scope, caller, request| heartbeat::heartbeat(app, scope, &caller, request.get_ref()).await;
    unregister_worker(UnregisterWorkerRequest) -> UnregisterWorkerResponse = |app, scope, caller, request| {
        register::unregister(app, scope, &caller, request.get_ref(), peer(&request)).await
    };
    submit_tasks(SubmitTasksRequest) -> SubmitTasksResponse =
        |app, scope, caller, request| submit::submit(app, &scope, &caller, request.into_inner()).await;
    work(Streaming<WorkRequest>) -> Self::WorkStream =
        |app, scope, caller, request| work::open(app, scope, caller, request);
}

/// The address of the caller.
pub(super) fn peer<T>(request: &Request<T>) -> Option<IpAddr> {
    request.extensions().get::<Context>().map(Context::peer)
}
