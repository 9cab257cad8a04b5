//! A coordinator that breaks the worker service's contract in one way: the service before a real one.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use tonic::codegen::http;
use tonic::codegen::tokio_stream::Pending;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::ServiceBuilder;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::worker_scheduler_server::{WorkerScheduler, WorkerSchedulerServer};
use wire::grpc::*;

use crate::mutant;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The response to a registration is empty.
    Curt,
    /// Whoever asks for tasks is answered, registered or not.
    OpenToAll,
    /// A replaced session may go on.
    NoShutdown,
    /// Leased tasks lack their timeout and the end of their lease.
    Timeless,
    /// Leased tasks lose what was submitted with them.
    Stripped,
    /// Everybody gets one task too many, if there is one.
    Generous,
    /// A full queue says that it took the task.
    Overfull,
    /// Responses have no verdict.
    NoVerdict,
    /// Every refusal of a report is an OK.
    Gullible,
    /// What came too late is COMMITTED.
    TooKind,
    /// All refusals have one status.
    Undecided,
    /// Responses to heartbeats have no cancel and no lost lease.
    Deaf,
    /// Those who say UnregisterWorker are refused.
    NoLeaving,
    /// Polls do not wait.
    Impatient,
    /// What a worker can do is not kept.
    Discreet,
    /// Neither state nor stats of a worker are kept.
    Careless,
    /// Every task goes to every worker.
    AnyPlatform,
    /// Only the service's own name is served.
    OneName,
    /// A failure without a lease id that was reported before in the same words needs its lease id.
    NeedsLeaseId,
    /// A silent worker keeps its leases for longer than it is told.
    Patient,
    /// Executions are leased without a timeout.
    Endless,
    /// Executions are leased with the longest timeout, whatever their action says.
    OneTimeout,
}

#[derive(Clone)]
struct Mutant {
    real: WorkerSchedulerClient<Channel>,
    fault: Fault,
    /// The failures that were reported without a lease id: task, worker and message.
    failures: Arc<Mutex<HashSet<[String; 3]>>>,
}

pub(crate) async fn start(server: &str, fault: Fault) -> String {
    mutant::start_with(server, |_, _| (), |_| (), |server| routes(server, fault)).await
}

fn routes(server: &str, fault: Fault) -> Router {
    let channel = Endpoint::from_shared(server.to_owned()).unwrap().connect_lazy();
    let mutant = Mutant { real: WorkerSchedulerClient::new(channel), fault, failures: Arc::default() };
    let names = if fault == Fault::OneName { &SERVICE_NAMES[..1] } else { &SERVICE_NAMES[..] };
    // Checks about executions use the services of their clients as well.
    let clients = ["Capabilities", "ContentAddressableStorage", "Execution"].iter().fold(
        Router::new(),
        |router, name| {
            let path = format!("/build.bazel.remote.execution.v2.{name}/{{*call}}");
            router.route(&path, crate::reapi_mutant::pass_on(server))
        },
    );
    names.iter().fold(clients, |router, name| {
        let service = WorkerSchedulerServer::new(mutant.clone());
        let service = ServiceBuilder::new().map_request(under_own_name).service(service);
        router.route_service(&format!("/{name}/{{*call}}"), service)
    })
}

fn under_own_name<B>(mut request: http::Request<B>) -> http::Request<B> {
    let call = request.uri().path().rsplit('/').next().unwrap_or_default();
    *request.uri_mut() = format!("/{}/{call}", SERVICE_NAMES[0]).parse().unwrap();
    request
}

impl Mutant {
    fn is(&self, fault: Fault) -> bool {
        self.fault == fault
    }
}

#[tonic::async_trait]
impl WorkerScheduler for Mutant {
    type WorkStream = Pending<Result<WorkResponse, Status>>;

    async fn register_worker(
        &self,
        mut request: Request<RegisterWorkerRequest>,
    ) -> Result<Response<RegisterWorkerResponse>, Status> {
        if self.is(Fault::Discreet) {
            request.get_mut().capabilities = None;
        }
        let mut response = self.real.clone().register_worker(request).await?;
        if self.is(Fault::Patient) {
            response.get_mut().heartbeat_timeout = Some(prost_types::Duration { seconds: 1, nanos: 0 });
        }
        Ok(if self.is(Fault::Curt) { Response::new(Default::default()) } else { response })
    }

    async fn lease_task(
        &self,
        mut request: Request<LeaseTaskRequest>,
    ) -> Result<Response<LeaseTaskResponse>, Status> {
        if self.is(Fault::Generous) {
            request.get_mut().max_tasks += 1;
        }
        if self.is(Fault::Impatient) {
            request.get_mut().timeout_seconds = 0;
        }
        let mut response = match self.real.clone().lease_task(request).await {
            Err(_) if self.is(Fault::OpenToAll) => return Ok(Response::new(Default::default())),
            response => response?,
        };
        for task in &mut response.get_mut().tasks {
            if self.is(Fault::Timeless) {
                (task.timeout, task.lease_expires_at) = (None, None);
            }
            // The tasks that the suite submits itself name an action that is none.
            let is_execution = task.action_digest.len() > 64;
            if self.is(Fault::Endless) && is_execution {
                task.timeout = None;
            }
            if self.is(Fault::OneTimeout) && is_execution {
                task.timeout = Some(prost_types::Duration { seconds: 24 * 60 * 60, nanos: 0 });
            }
            if self.is(Fault::Stripped) {
                (task.payload, task.operation_name) = Default::default();
            }
        }
        Ok(response)
    }

    async fn update_task_status(
        &self,
        request: Request<UpdateTaskStatusRequest>,
    ) -> Result<Response<UpdateTaskStatusResponse>, Status> {
        let report = request.get_ref();
        if self.is(Fault::NeedsLeaseId) && report.lease_id.is_empty() && report.status() == TaskStatus::Failed
        {
            let failure = [&report.task_id, &report.worker_id, &report.error_message].map(Clone::clone);
            if !self.failures.lock().unwrap().insert(failure) {
                return Err(Status::failed_precondition("lease_id_needed"));
            }
        }
        let mut response = match self.real.clone().update_task_status(request).await {
            Err(_) if self.is(Fault::Gullible) => {
                let verdict = Verdict::Committed.into();
                return Ok(Response::new(UpdateTaskStatusResponse { verdict, ..Default::default() }));
            }
            Err(status) if self.is(Fault::Undecided) => {
                return Err(Status::new(Code::Unknown, status.message()));
            }
            response => response?,
        };
        let answer = response.get_mut();
        if self.is(Fault::NoVerdict) {
            answer.set_verdict(Verdict::Unspecified);
        }
        if self.is(Fault::TooKind) && answer.verdict() == Verdict::Cancelled {
            answer.set_verdict(Verdict::Committed);
        }
        Ok(response)
    }

    async fn report_heartbeat(
        &self,
        mut request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        if self.is(Fault::Careless) {
            (request.get_mut().state, request.get_mut().stats) = (0, None);
        }
        let mut response = self.real.clone().report_heartbeat(request).await?;
        if self.is(Fault::NoShutdown) {
            response.get_mut().should_shutdown = false;
        }
        for lease in response.get_mut().leases.iter_mut().filter(|_| self.is(Fault::Deaf)) {
            (lease.should_cancel, lease.lost) = (false, false);
        }
        Ok(response)
    }

    async fn unregister_worker(
        &self,
        request: Request<UnregisterWorkerRequest>,
    ) -> Result<Response<UnregisterWorkerResponse>, Status> {
        if self.is(Fault::NoLeaving) {
            Err(Status::unimplemented("no"))
        } else {
            self.real.clone().unregister_worker(request).await
        }
    }

    async fn submit_tasks(
        &self,
        mut request: Request<SubmitTasksRequest>,
    ) -> Result<Response<SubmitTasksResponse>, Status> {
        if self.is(Fault::AnyPlatform) {
            request.get_mut().tasks.iter_mut().for_each(|task| task.properties.clear());
        }
        match self.real.clone().submit_tasks(request).await {
            Err(_) if self.is(Fault::Overfull) => Ok(Response::new(Default::default())),
            response => response,
        }
    }

    async fn work(&self, _: Request<Streaming<WorkRequest>>) -> Result<Response<Self::WorkStream>, Status> {
        Err(Status::unimplemented("the suite does not ask for it"))
    }
}
