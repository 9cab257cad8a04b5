//! A real server over a real coordinator in a directory of its own, and short ways to call it.

#[path = "../support/nodes.rs"]
pub(crate) mod nodes;

use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;

use authority::Scope;
use bytes::Bytes;
use coordinator::Running;
use serde_json::Value;
use server::{App, Drained, Limits, Listener, Scheduler};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt;
use wire::DEFAULT_SCOPE_NAME;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    LeaseTaskRequest, LeasedTask, RegisterWorkerRequest, SubmitTask, SubmitTasksRequest, TaskStatus,
    UpdateTaskStatusRequest,
};

pub(crate) type Client = WorkerSchedulerClient<Channel>;

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Served {
    pub address: SocketAddr,
    pub running: Running,
    http: reqwest::Client,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<Drained>,
    directory: TempDir,
}

impl Served {
    pub(crate) async fn start() -> Served {
        Served::start_with(Scheduler::default()).await
    }

    pub(crate) async fn start_with(scheduler: Scheduler) -> Served {
        Served::start_in(tempfile::tempdir().unwrap(), scheduler).await
    }

    /// Stops in good order and starts again on the same ledger.
    pub(crate) async fn restart(self) -> Served {
        self.restart_with(Scheduler::default()).await
    }

    pub(crate) async fn restart_with(self, scheduler: Scheduler) -> Served {
        Served::start_in(self.stop().await, scheduler).await
    }

    async fn start_in(directory: TempDir, scheduler: Scheduler) -> Served {
        let storage = nodes::open_ledger(directory.path()).await;
        let queue_defaults = server::reapi::queue_defaults();
        let coordinator_options = coordinator::Options { queue_defaults, ..coordinator::Options::default() };
        let start = || coordinator::start(storage, coordinator_options);
        let running = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
        let listeners = nodes::listen("127.0.0.1:0").await;
        let address = listeners[0].local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let options = server::Options { scheduler, ..server::Options::default() };
        running.handle.set_heartbeat_timeout(scheduler.heartbeat_timeout);
        let app = |handle| App::with_options(handle, [7; 32], options.clone());
        let apps = nodes::handles(&running).await.into_iter().map(app);
        let served = listeners.into_iter().map(Listener::from).zip(apps).collect();
        let serving = nodes::serve(served, Limits::default(), stopped);
        let http = nodes::http_client();
        Served { address, running, http, stop: Some(stop), serving, directory }
    }

    /// Tells the server to stop, without waiting.
    pub(crate) fn begin_stop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
    }

    pub(crate) async fn stop(mut self) -> TempDir {
        self.begin_stop();
        in_time(self.serving).await.unwrap();
        self.running.stop().await.unwrap();
        self.directory
    }

    pub(crate) async fn channel(&self) -> Channel {
        nodes::channel(self.address).await
    }

    /// A channel whose calls come from another address of this machine.
    pub(crate) async fn channel_from(&self, address: &str) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        endpoint.local_address(Some(address.parse().unwrap())).connect().await.unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        WorkerSchedulerClient::new(self.channel().await)
    }

    /// A client of a worker that is registered.
    pub(crate) async fn worker(&self, worker: &str) -> Client {
        let mut client = self.client().await;
        client.register_worker(registration(worker)).await.unwrap();
        client
    }

    pub(crate) async fn submit(&self, queue: &str) -> String {
        submit(&mut self.client().await, task(queue)).await
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let response = self.http.get(format!("http://{}{path}", self.address)).send().await.unwrap();
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: Value) -> Value {
        let method = method.parse().unwrap();
        let request = self.http.request(method, format!("http://{}{path}", self.address)).json(&body);
        serde_json::from_slice(&request.send().await.unwrap().bytes().await.unwrap()).unwrap()
    }

    pub(crate) async fn task(&self, task_id: &str) -> Value {
        self.get(&format!("/v1/tasks/{task_id}")).await
    }

    /// What the server says of a worker; null when it never heard of it.
    pub(crate) async fn known(&self, worker: &str) -> Value {
        let list = self.get("/v1/workers").await;
        let mut workers = list["workers"].as_array().unwrap().iter();
        workers.find(|known| known["workerId"] == worker).cloned().unwrap_or_default()
    }

    /// The newest record's place: it stands still while nothing changes.
    pub(crate) async fn position(&self) -> u64 {
        self.running.handle.status().await.unwrap().position.0
    }

    /// Waits until as many polls wait for tasks.
    pub(crate) async fn polls(&self, wanted: usize) {
        in_time(async {
            while self.running.handle.status().await.unwrap().polls != wanted {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it is stuck")
}

/// Where calls belong that name neither tenant nor workspace.
pub(crate) fn scope() -> Scope {
    Scope { tenant: DEFAULT_SCOPE_NAME.into(), workspace: DEFAULT_SCOPE_NAME.into() }
}

pub(crate) fn registration(worker: &str) -> RegisterWorkerRequest {
    RegisterWorkerRequest { worker_id: worker.to_owned(), ..RegisterWorkerRequest::default() }
}

pub(crate) fn task(queue: &str) -> SubmitTask {
    SubmitTask {
        queue: queue.to_owned(),
        payload: Bytes::from_static(br#"{"n":1}"#),
        ..SubmitTask::default()
    }
}

pub(crate) async fn submit(client: &mut Client, task: SubmitTask) -> String {
    let answer = client.submit_tasks(SubmitTasksRequest { tasks: vec![task] }).await.unwrap().into_inner();
    assert_eq!(answer.tasks[0].problem, None);
    answer.tasks[0].task_id.clone()
}

/// Asks for one task of a queue, without waiting.
pub(crate) fn ask(worker: &str, queue: &str) -> LeaseTaskRequest {
    LeaseTaskRequest {
        worker_id: worker.to_owned(),
        max_tasks: 1,
        queues: vec![queue.to_owned()],
        ..LeaseTaskRequest::default()
    }
}

/// Leases one task, which must be there.
pub(crate) async fn lease(client: &mut Client, worker: &str, queue: &str) -> LeasedTask {
    let answer = client.lease_task(ask(worker, queue)).await.unwrap().into_inner();
    assert_eq!(answer.tasks.len(), 1);
    answer.tasks.into_iter().next().unwrap()
}

pub(crate) fn update(worker: &str, task: &LeasedTask, status: TaskStatus) -> UpdateTaskStatusRequest {
    UpdateTaskStatusRequest {
        task_id: task.task_id.clone(),
        worker_id: worker.to_owned(),
        lease_id: task.lease_id.clone(),
        status: status.into(),
        ..UpdateTaskStatusRequest::default()
    }
}

pub(crate) fn completed(worker: &str, task: &LeasedTask, result: &'static str) -> UpdateTaskStatusRequest {
    UpdateTaskStatusRequest {
        result_json: Bytes::from_static(result.as_bytes()),
        ..update(worker, task, TaskStatus::Completed)
    }
}

pub(crate) fn failed(worker: &str, task: &LeasedTask, message: &str) -> UpdateTaskStatusRequest {
    UpdateTaskStatusRequest { error_message: message.to_owned(), ..update(worker, task, TaskStatus::Failed) }
}

/// Asserts that a call was refused, with a code and a reason for programs.
#[track_caller]
pub(crate) fn is_refused<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, reason: &str) {
    let status = answer.expect_err("it must be refused");
    assert_eq!(status.code(), code, "{status:?}");
    let details = status.get_error_details();
    assert_eq!(details.error_info().map(|info| info.reason.as_str()), Some(reason), "{status:?}");
}

/// As [`is_refused`], for a report that is thereby rejected.
#[track_caller]
pub(crate) fn is_rejected<T: std::fmt::Debug>(answer: Result<T, Status>, code: Code, reason: &str) {
    if let Err(status) = &answer {
        let details = status.get_error_details();
        let verdict = details.error_info().and_then(|info| info.metadata.get("verdict").cloned());
        assert_eq!(verdict.as_deref(), Some("REJECTED"), "{status:?}");
    }
    is_refused(answer, code, reason);
}
