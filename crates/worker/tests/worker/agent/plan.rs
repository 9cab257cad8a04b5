//! The agent of the five scheduler calls against a server that fails in ways in which a real one seldom does.

use std::sync::{Arc, Mutex};

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use wire::grpc::worker_scheduler_server::{WorkerScheduler, WorkerSchedulerServer};
use wire::grpc::*;
use worker::{Config, Outcome, Protocol};

use super::support::{Worker, config, in_time};

/// Gives out one task, and answers the end of its attempt with INTERNAL so often before it accepts it.
struct Failing {
    tasks: Mutex<Vec<LeasedTask>>,
    internal_answers: Mutex<u32>,
    ends: mpsc::UnboundedSender<(TaskStatus, bool)>,
}

#[tonic::async_trait]
impl WorkerScheduler for Failing {
    type WorkStream = ReceiverStream<Result<WorkResponse, Status>>;

    async fn register_worker(
        &self,
        _: Request<RegisterWorkerRequest>,
    ) -> Result<Response<RegisterWorkerResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn lease_task(&self, _: Request<LeaseTaskRequest>) -> Result<Response<LeaseTaskResponse>, Status> {
        let task = self.tasks.lock().unwrap().pop();
        match task {
            Some(task) => Ok(Response::new(LeaseTaskResponse { tasks: vec![task] })),
            None => std::future::pending().await,
        }
    }

    async fn update_task_status(
        &self,
        report: Request<UpdateTaskStatusRequest>,
    ) -> Result<Response<UpdateTaskStatusResponse>, Status> {
        let status = report.get_ref().status();
        if status == TaskStatus::Executing {
            return Ok(Response::new(Default::default()));
        }
        let mut internal_answers = self.internal_answers.lock().unwrap();
        let is_accepted = *internal_answers == 0;
        *internal_answers = internal_answers.saturating_sub(1);
        self.ends.send((status, is_accepted)).unwrap();
        if is_accepted {
            Ok(Response::new(Default::default()))
        } else {
            Err(Status::internal("the disk hiccuped"))
        }
    }

    async fn report_heartbeat(
        &self,
        _: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn unregister_worker(
        &self,
        _: Request<UnregisterWorkerRequest>,
    ) -> Result<Response<UnregisterWorkerResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn submit_tasks(
        &self,
        _: Request<SubmitTasksRequest>,
    ) -> Result<Response<SubmitTasksResponse>, Status> {
        Err(Status::unimplemented("no part of the calls"))
    }

    async fn work(&self, _: Request<Streaming<WorkRequest>>) -> Result<Response<Self::WorkStream>, Status> {
        Err(Status::unimplemented("no part of the calls"))
    }
}

/// One INTERNAL made the worker discard the result of a finished action.
#[tokio::test]
async fn a_finished_action_is_reported_again_after_internal_errors() {
    let task = LeasedTask {
        task_id: "t".to_owned(),
        action_digest: format!("{}/7", "a".repeat(64)),
        ..LeasedTask::default()
    };
    let (ends, mut ended) = mpsc::unbounded_channel();
    let failing = Failing { tasks: Mutex::new(vec![task]), internal_answers: Mutex::new(3), ends };
    let service = WorkerSchedulerServer::from_arc(Arc::new(failing));
    let router = Router::new().route_service("/lessor.worker.v1.WorkerScheduler/{*call}", service);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let mut worker = Worker::with(Config { protocol: Protocol::Plan, ..config(address, 1) });
    worker.next().await.end(Outcome::Action(Box::default()));
    let mut reports = Vec::new();
    while reports.last().is_none_or(|(_, is_accepted)| !is_accepted) {
        reports.push(in_time(ended.recv()).await.unwrap());
    }
    let statuses: Vec<_> = reports.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [TaskStatus::Completed; 4], "the same report each time");
    worker.stop.stop();
    worker.ended().await.unwrap();
    serving.abort();
}
