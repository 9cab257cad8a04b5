//! A client of the five scheduler calls: RegisterWorker, LeaseTask, UpdateTaskStatus, ReportHeartbeat, UnregisterWorker.
//!
//! It sends and reads only the fields of the calls' original definition (S3-9 to S3-26), so that it works with any server
//! that implements them: no lease ids, no sessions, no stream.

use std::time::Duration;

use prost::Message;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;
use wire::grpc::{
    HeartbeatRequest, HeartbeatResponse, LeaseTaskRequest, LeaseTaskResponse, LeasedTask,
    RegisterWorkerResponse, UnregisterWorkerRequest, UnregisterWorkerResponse, UpdateTaskStatusRequest,
    UpdateTaskStatusResponse, WorkerState, WorkerStats,
};

use super::connection::{ANSWER_TIMEOUT, Connector, MAX_MESSAGE_BYTES};
use crate::{Config, Error};

/// The definition names no package. These are the names that its service may have, tried in this order.
const SERVICES: [&str; 3] = [
    "WorkerScheduler",
    "build.bazel.remote.execution.v2.WorkerScheduler",
    "lessor.worker.v1.WorkerScheduler",
];
/// How long a server may hold a request for tasks.
const LEASE_WAIT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct SchedulerClient {
    connector: Connector,
    channel: Channel,
    worker_id: String,
    service: &'static str,
}

impl SchedulerClient {
    pub(super) fn new(config: &Config) -> Result<SchedulerClient, Error> {
        let connector = Connector::new(config)?;
        let channel = connector.connect_lazy();
        Ok(SchedulerClient { connector, channel, worker_id: config.worker_id.clone(), service: SERVICES[0] })
    }

    /// Registers, under the first name of the service that the server knows.
    pub(super) async fn register(&mut self) -> Result<(), Status> {
        let mut request = self.connector.registration();
        request.session_id = String::new();
        let mut unknown = Status::unimplemented("the server has no WorkerScheduler");
        for service in SERVICES {
            self.service = service;
            let answer =
                self.call::<_, RegisterWorkerResponse>("RegisterWorker", request.clone(), ANSWER_TIMEOUT);
            match answer.await {
                Err(status) if status.code() == Code::Unimplemented => unknown = status,
                answer => return answer.map(drop),
            }
        }
        Err(unknown)
    }

    /// Waits for tasks. An empty list is no error.
    pub(super) async fn lease(&self, max_tasks: usize) -> Result<Vec<LeasedTask>, Status> {
        let request = LeaseTaskRequest {
            worker_id: self.worker_id.clone(),
            max_tasks: i32::try_from(max_tasks).unwrap_or(i32::MAX),
            timeout_seconds: LEASE_WAIT.as_secs() as i64,
            ..LeaseTaskRequest::default()
        };
        let answer: LeaseTaskResponse = self.call("LeaseTask", request, LEASE_WAIT + ANSWER_TIMEOUT).await?;
        Ok(answer.tasks)
    }

    /// The report must have no fields but those of the definition.
    pub(super) async fn update(&self, report: UpdateTaskStatusRequest) -> Result<(), Status> {
        let report = UpdateTaskStatusRequest { worker_id: self.worker_id.clone(), ..report };
        self.call::<_, UpdateTaskStatusResponse>("UpdateTaskStatus", report, ANSWER_TIMEOUT).await.map(drop)
    }

    /// Whether the server asks the worker to stop.
    pub(super) async fn heartbeat(&self, state: WorkerState, stats: WorkerStats) -> Result<bool, Status> {
        let request = HeartbeatRequest {
            worker_id: self.worker_id.clone(),
            state: state.into(),
            stats: Some(stats),
            ..HeartbeatRequest::default()
        };
        let answer: HeartbeatResponse = self.call("ReportHeartbeat", request, ANSWER_TIMEOUT).await?;
        Ok(answer.should_shutdown)
    }

    pub(super) async fn unregister(&self) -> Result<(), Status> {
        let request = UnregisterWorkerRequest {
            worker_id: self.worker_id.clone(),
            ..UnregisterWorkerRequest::default()
        };
        self.call::<_, UnregisterWorkerResponse>("UnregisterWorker", request, ANSWER_TIMEOUT).await.map(drop)
    }

    async fn call<Q, A>(&self, name: &str, request: Q, within: Duration) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = format!("/{}/{name}", self.service);
        let path = PathAndQuery::try_from(path).map_err(|error| Status::internal(error.to_string()))?;
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let call = async {
            grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
            grpc.unary(self.connector.request(request), path, ProstCodec::default()).await
        };
        match timeout(within, call).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_) => Err(Status::deadline_exceeded("the coordinator did not answer in time")),
        }
    }
}
