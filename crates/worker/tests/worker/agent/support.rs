//! A real server over a real coordinator, which can go away and come back, and an agent whose work is in the test's
//! hands.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use coordinator::Running;
use ledger::{ClusterId, file};
use serde_json::Value;
use server::reapi::Content;
use server::{App, Drained, Limits};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};
use wire::grpc::LeasedTask;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{SubmitTask, SubmitTasksRequest};
use worker::{ActionOptions, Agent, Config, Error, Failure, Outcome, Performer, Permit, Pool, Stopper};

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it is stuck")
}

pub(crate) struct Served {
    pub address: SocketAddr,
    running: Running,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Drained>,
    directory: TempDir,
    content: Option<Content>,
}

/// A server that is not there at the moment.
pub(crate) struct Down {
    pub address: SocketAddr,
    directory: TempDir,
    content: Option<Content>,
}

impl Served {
    pub(crate) async fn start() -> Served {
        Served::start_with(None).await
    }

    /// With this content, remote execution is served too.
    pub(crate) async fn start_with(content: Option<Content>) -> Served {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        Down { address, directory: tempfile::tempdir().unwrap(), content }.up().await
    }

    pub(crate) async fn down(self) -> Down {
        let _ = self.stop.send(());
        in_time(self.serving).await.unwrap();
        self.running.stop().await.unwrap();
        Down { address: self.address, directory: self.directory, content: self.content }
    }

    pub(crate) async fn client(&self) -> WorkerSchedulerClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        WorkerSchedulerClient::new(endpoint.connect().await.unwrap())
    }

    pub(crate) async fn submit(&self, task: SubmitTask) -> String {
        self.submit_to("default", task).await
    }

    pub(crate) async fn submit_to(&self, workspace: &str, task: SubmitTask) -> String {
        let mut request = Request::new(SubmitTasksRequest { tasks: vec![task] });
        request.metadata_mut().insert("lessor-workspace", workspace.parse().unwrap());
        let answer = self.client().await.submit_tasks(request).await.unwrap().into_inner();
        assert_eq!(answer.tasks[0].problem, None);
        answer.tasks[0].task_id.clone()
    }

    /// Submits the same task so often.
    pub(crate) async fn submit_many(&self, task: SubmitTask, count: usize) -> Vec<String> {
        let (mut client, mut ids) = (self.client().await, Vec::new());
        while ids.len() < count {
            let tasks = vec![task.clone(); (count - ids.len()).min(wire::MAX_BATCH_TASKS)];
            let answer = client.submit_tasks(SubmitTasksRequest { tasks }).await.unwrap().into_inner();
            ids.extend(answer.tasks.into_iter().map(|submitted| submitted.task_id));
        }
        ids
    }

    /// What the server answers to one request over HTTP.
    pub(crate) async fn http(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        in_time(stream.read_to_string(&mut answer)).await.unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }

    pub(crate) async fn task(&self, task_id: &str) -> Value {
        self.http("GET", &format!("/v1/tasks/{task_id}"), "").await
    }

    pub(crate) async fn cancel(&self, task_id: &str) {
        self.http("POST", &format!("/v1/tasks/{task_id}/cancel"), r#"{"reason":"enough"}"#).await;
    }

    /// Waits until a task is as it should be.
    pub(crate) async fn until(&self, task_id: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        in_time(async {
            loop {
                let task = self.task(task_id).await;
                if is_so(&task) {
                    return task;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// What the server says of a worker's registration; null when there is none.
    pub(crate) async fn known(&self, worker: &str) -> Value {
        let list = self.http("GET", "/v1/workers", "").await;
        let mut workers = list["workers"].as_array().unwrap().iter();
        let known = workers.find(|known| known["workerId"] == worker).cloned().unwrap_or_default();
        known["registration"].clone()
    }
}

impl Down {
    pub(crate) async fn up(self) -> Served {
        let running = in_time(started(self.directory.path())).await;
        let listener = TcpListener::bind(self.address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let options = server::Options { content: self.content.clone(), ..server::Options::default() };
        let app = App::with_options(running.handle.clone(), [7; 32], options);
        let serving = tokio::spawn(server::serve_with(listener, app, Limits::default(), async {
            let _ = stopped.await;
        }));
        Served { address, running, stop, serving, directory: self.directory, content: self.content }
    }
}

/// Starts once the directory is free: a process that another test is about to start may hold it for a moment.
async fn started(directory: &Path) -> Running {
    loop {
        let is_new = directory.read_dir().unwrap().next().is_none();
        let create = is_new.then_some(ClusterId([1; 16]));
        let options = file::Options {
            create,
            segment_bytes: 32 << 20,
            preallocate_bytes: 1 << 20,
            ..file::Options::default()
        };
        match file::open_data_dir(directory, options) {
            Ok((storage, _)) => {
                let queue_defaults = server::reapi::queue_defaults();
                let coordinator_options =
                    coordinator::Options { queue_defaults, ..coordinator::Options::default() };
                let start = || coordinator::start(storage, coordinator_options);
                return tokio::task::spawn_blocking(start).await.unwrap().unwrap();
            }
            Err(error) => assert!(error.to_string().contains("in use"), "{error}"),
        }
    }
}

/// An attempt that waits for the test to say how it ends.
pub(crate) struct Begun {
    pub task: LeasedTask,
    pub permit: Permit,
    end: oneshot::Sender<Outcome>,
}

impl Begun {
    pub(crate) fn end(self, outcome: Outcome) {
        let _ = self.end.send(outcome);
    }

    pub(crate) fn done(self) {
        self.end(Outcome::Json(Bytes::from_static(b"{\"n\":1}")));
    }

    pub(crate) async fn cancelled(&self) {
        in_time(self.permit.cancelled().cancelled()).await;
    }
}

struct Puppet(mpsc::UnboundedSender<Begun>);

#[tonic::async_trait]
impl Performer for Puppet {
    async fn perform(&self, task: LeasedTask, permit: Permit) -> Outcome {
        let (end, ended) = oneshot::channel();
        let cancel = permit.cancelled().clone();
        self.0.send(Begun { task, permit, end }).unwrap();
        tokio::select! {
            outcome = ended => outcome.expect("the test says how it ends"),
            () = cancel.cancelled() => Failure::cancelled().into(),
        }
    }
}

/// An agent `w` of the queue `q`.
pub(crate) struct Worker {
    begun: mpsc::UnboundedReceiver<Begun>,
    pub stop: Stopper,
    agent: JoinHandle<Result<(), Error>>,
}

impl Worker {
    pub(crate) fn start(served: &Served, slots: usize) -> Worker {
        Worker::at(served.address, slots, Duration::from_secs(300))
    }

    pub(crate) fn at(address: SocketAddr, slots: usize, drain_timeout: Duration) -> Worker {
        Worker::with(Config { drain_timeout, ..config(address, slots) })
    }

    /// An agent of this name with one slot.
    pub(crate) fn named(address: SocketAddr, worker_id: String) -> Worker {
        Worker::with(Config { worker_id, ..config(address, 1) })
    }

    pub(crate) fn with(config: Config) -> Worker {
        let (sender, begun) = mpsc::unbounded_channel();
        let stop = Stopper::new();
        let agent = tokio::spawn(Agent::serve(config, Arc::new(Puppet(sender)), stop.clone()));
        Worker { begun, stop, agent }
    }

    pub(crate) async fn next(&mut self) -> Begun {
        in_time(self.begun.recv()).await.expect("the agent lives")
    }

    /// Whether nothing has begun that was not looked at.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.begun.try_recv().is_err()
    }

    pub(crate) async fn ended(self) -> Result<(), Error> {
        in_time(self.agent).await.unwrap()
    }
}

/// One agent for each of these workspaces, which have their slots in common.
pub(crate) fn sharing(served: &Served, slots: usize, workspaces: &[&str]) -> mpsc::UnboundedReceiver<Begun> {
    let pool = Pool::new(&config(served.address, slots));
    let (sender, begun) = mpsc::unbounded_channel();
    for workspace in workspaces {
        let workspace = Some((*workspace).to_owned());
        let (config, pool) = (Config { workspace, ..config(served.address, slots) }, pool.clone());
        let puppet = Arc::new(Puppet(sender.clone()));
        tokio::spawn(async move { Agent::serve_from(&pool, config, puppet, Stopper::new()).await });
    }
    begun
}

pub(crate) fn config(address: SocketAddr, slots: usize) -> Config {
    Config {
        queues: vec!["q".to_owned()],
        max_concurrent_tasks: slots,
        ..Config::new(format!("http://{address}"), "w", ActionOptions::below("unused"))
    }
}

pub(crate) fn task() -> SubmitTask {
    SubmitTask { queue: "q".to_owned(), payload: Bytes::from_static(b"{}"), ..SubmitTask::default() }
}

pub(crate) fn short_lease(lease_ms: u64) -> SubmitTask {
    SubmitTask { lease_ms, ..task() }
}
