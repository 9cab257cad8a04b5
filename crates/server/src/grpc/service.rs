//! The calls of the worker service, each in a file of its own.

use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::grpc::worker_scheduler_server::WorkerScheduler;
use wire::grpc::{
    HeartbeatRequest, HeartbeatResponse, LeaseTaskRequest, LeaseTaskResponse, RegisterWorkerRequest,
    RegisterWorkerResponse, SubmitTasksRequest, SubmitTasksResponse, UnregisterWorkerRequest,
    UnregisterWorkerResponse, UpdateTaskStatusRequest, UpdateTaskStatusResponse, WorkRequest, WorkResponse,
};

use super::{heartbeat, lease, register, submit, update, values, work};
use crate::app::App;

pub(super) struct Service {
    app: App,
}

impl Service {
    pub(super) fn new(app: App) -> Service {
        Service { app }
    }
}

#[tonic::async_trait]
impl WorkerScheduler for Service {
    async fn register_worker(
        &self,
        request: Request<RegisterWorkerRequest>,
    ) -> Result<Response<RegisterWorkerResponse>, Status> {
        let scope = values::scope(request.metadata())?;
        register::register(&self.app, &scope, request.get_ref()).await.map(Response::new)
    }

    async fn lease_task(
        &self,
        request: Request<LeaseTaskRequest>,
    ) -> Result<Response<LeaseTaskResponse>, Status> {
        let scope = values::scope(request.metadata())?;
        lease::lease(&self.app, &scope, &request).await.map(Response::new)
    }

    async fn update_task_status(
        &self,
        request: Request<UpdateTaskStatusRequest>,
    ) -> Result<Response<UpdateTaskStatusResponse>, Status> {
        let scope = values::scope(request.metadata())?;
        update::update(&self.app, &scope, request.get_ref()).await.map(Response::new)
    }

    async fn report_heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        let scope = values::scope(request.metadata())?;
        heartbeat::heartbeat(&self.app, &scope, request.get_ref()).await.map(Response::new)
    }

    async fn unregister_worker(
        &self,
        request: Request<UnregisterWorkerRequest>,
    ) -> Result<Response<UnregisterWorkerResponse>, Status> {
        let scope = values::scope(request.metadata())?;
        register::unregister(&self.app, &scope, request.get_ref()).await.map(Response::new)
    }

    async fn submit_tasks(
        &self,
        request: Request<SubmitTasksRequest>,
    ) -> Result<Response<SubmitTasksResponse>, Status> {
        let scope = values::scope(request.metadata())?;
        submit::submit(&self.app, &scope, request.into_inner()).await.map(Response::new)
    }

    type WorkStream = ReceiverStream<Result<WorkResponse, Status>>;

    async fn work(
        &self,
        request: Request<Streaming<WorkRequest>>,
    ) -> Result<Response<Self::WorkStream>, Status> {
        let scope = values::scope(request.metadata())?;
        work::open(&self.app, scope, request).map(Response::new)
    }
}
