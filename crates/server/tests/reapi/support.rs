//! A real server over a real coordinator and a real store, a worker whose every step a test decides, and short ways to
//! call them.

#[path = "../support/nodes.rs"]
pub(crate) mod nodes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bazel_remote_apis::build::bazel::remote::execution::v2::action_cache_client::ActionCacheClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::content_addressable_storage_client::ContentAddressableStorageClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, ActionResult, BatchUpdateBlobsRequest, Command, Digest, Directory, ExecuteRequest,
    ExecuteResponse, FileNode, GetActionResultRequest, batch_update_blobs_request::Request as Blob,
};
use bazel_remote_apis::google::longrunning::operations_client::OperationsClient;
use bazel_remote_apis::google::longrunning::{Operation, operation};
use coordinator::Running;
use prost::Message;
use server::reapi::{ActionCacheWriter, Content, Results, Settings};
use server::{App, Drained, Limits, Listener};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Status, Streaming};
use tonic_types::StatusExt;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    LeaseTaskRequest, LeasedTask, RegisterWorkerRequest, TaskStatus, UpdateTaskStatusRequest,
    UpdateTaskStatusResponse,
};

use crate::stalling::{Gate, StallingBlobs};
use crate::store_server::{self, StoreServer};

/// Long enough for anything that is not stuck.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a reader waits for a place where there are few.
const SHORT_WAIT: Duration = Duration::from_millis(50);

/// How a server is set up; everything stays so over a restart.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    pub settings: Settings,
    pub store: blobs::Options,
    pub receiving: server::Receiving,
    /// Most readers of large blobs at a time.
    pub max_reads: Option<usize>,
    /// Stops the lookups of the content store while it is closed.
    pub gate: Gate,
    /// Where the content is, if it is not with the rest.
    pub content: Option<std::path::PathBuf>,
}

pub(crate) struct Served {
    pub address: SocketAddr,
    pub running: Running,
    pub app: App,
    pub blobs: Arc<blobs::Local>,
    setup: Setup,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Drained>,
    /// The content of several nodes.
    content_server: Option<StoreServer>,
    directory: TempDir,
}

impl Served {
    pub(crate) async fn start() -> Served {
        Served::start_with(Settings::default()).await
    }

    pub(crate) async fn start_with(settings: Settings) -> Served {
        Served::set_up(Setup { settings, ..Setup::default() }).await
    }

    pub(crate) async fn set_up(setup: Setup) -> Served {
        Served::start_in(tempfile::tempdir().unwrap(), setup).await
    }

    /// Stops in good order and starts again on the same directory.
    pub(crate) async fn restart(self) -> Served {
        let setup = self.setup.clone();
        Served::start_in(self.stop().await, setup).await
    }

    /// Stops, loses all content, and starts again.
    pub(crate) async fn restart_without_content(self) -> Served {
        let (setup, content) = (self.setup.clone(), self.content_path());
        let directory = self.stop().await;
        std::fs::remove_dir_all(content).unwrap();
        Served::start_in(directory, setup).await
    }

    pub(crate) async fn stop(self) -> TempDir {
        let _ = self.stop.send(());
        in_time(self.serving).await.unwrap();
        drop(self.app);
        self.running.stop().await.unwrap();
        if let Some(server) = self.content_server {
            server.stop().await;
        }
        drop(self.blobs);
        self.directory
    }

    async fn start_in(directory: TempDir, setup: Setup) -> Served {
        let content = setup.content.clone().unwrap_or_else(|| directory.path().join("content"));
        // A process that another test is about to start may hold the lock for a moment.
        let open = async {
            loop {
                match blobs::Store::open(&content, setup.store.clone()) {
                    Err(blobs::OpenError::InUse(_)) => tokio::task::yield_now().await,
                    opened => break opened.unwrap(),
                }
            }
        };
        let store = in_time(open).await;
        let blobs = Arc::new(blobs::Local::new(store));
        let content_server =
            if nodes::are_several() { Some(StoreServer::start(blobs.clone()).await) } else { None };
        let contents = contents(&setup, &blobs, content_server.as_ref(), &directory);
        let storage = nodes::open_ledger(&directory.path().join("data")).await;
        let queue_defaults = server::reapi::queue_defaults();
        let mut options = coordinator::Options { queue_defaults, ..coordinator::Options::default() };
        let results = contents[0].results.clone();
        let writer = ActionCacheWriter::new(results, tokio::runtime::Handle::current());
        options.projections.push(Box::new(writer));
        let running =
            tokio::task::spawn_blocking(|| coordinator::start(storage, options)).await.unwrap().unwrap();
        let receiving = setup.receiving;
        let app = |(handle, content)| {
            let options = server::Options { content: Some(content), receiving, ..server::Options::default() };
            App::with_options(handle, [7; 32], options)
        };
        let apps: Vec<App> = nodes::handles(&running).await.into_iter().zip(contents).map(app).collect();
        let app = apps[0].clone();
        let listeners = nodes::listen("127.0.0.1:0").await;
        let address = listeners[0].local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = listeners.into_iter().map(Listener::from).zip(apps).collect();
        let serving = nodes::serve(served, Limits::default(), stopped);
        Served { address, running, app, blobs, setup, stop, serving, content_server, directory }
    }

    /// Where the content is.
    pub(crate) fn content_path(&self) -> std::path::PathBuf {
        self.setup.content.clone().unwrap_or_else(|| self.directory.path().join("content"))
    }

    /// Waits until what executions need is pinned.
    pub(crate) async fn pinned_again(&self) {
        while self.blobs.store().usage().pinned == 0 {
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn channel(&self) -> Channel {
        nodes::channel(self.address).await
    }

    pub(crate) async fn cas(&self) -> ContentAddressableStorageClient<Channel> {
        ContentAddressableStorageClient::new(self.channel().await)
    }

    pub(crate) async fn operations(&self) -> OperationsClient<Channel> {
        OperationsClient::new(self.channel().await)
    }

    /// Uploads blobs and gives their digests.
    pub(crate) async fn upload(&self, blobs: &[&[u8]]) -> Vec<Digest> {
        let digests: Vec<Digest> = blobs.iter().map(|bytes| digest(bytes)).collect();
        let requests = digests.iter().zip(blobs).map(|(digest, bytes)| Blob {
            digest: Some(digest.clone()),
            data: bytes.to_vec(),
            ..Blob::default()
        });
        let request = BatchUpdateBlobsRequest { requests: requests.collect(), ..Default::default() };
        let told = self.cas().await.batch_update_blobs(request).await.unwrap().into_inner();
        assert!(told.responses.iter().all(|told| told.status.as_ref().is_none_or(|status| status.code == 0)));
        digests
    }

    /// Uploads an action of this command with an empty input root.
    pub(crate) async fn action(&self, command: &[&str]) -> Digest {
        self.action_with(command, |_| {}).await
    }

    /// Uploads an action of this command with these files as its inputs, but not the files.
    pub(crate) async fn action_on(&self, command: &[&str], files: &[(&str, &[u8])]) -> Digest {
        let file = |(name, content): &(&str, &[u8])| FileNode {
            name: (*name).to_owned(),
            digest: Some(digest(content)),
            ..FileNode::default()
        };
        let root = Directory { files: files.iter().map(file).collect(), ..Directory::default() };
        let root = root.encode_to_vec();
        self.upload(&[&root]).await;
        self.action_with(command, |action| action.input_root_digest = Some(digest(&root))).await
    }

    pub(crate) async fn action_with(&self, command: &[&str], change: impl Fn(&mut Action)) -> Digest {
        let command = Command {
            arguments: command.iter().map(|word| (*word).to_owned()).collect(),
            ..Command::default()
        };
        let (command, root) = (command.encode_to_vec(), Directory::default().encode_to_vec());
        let mut action = Action {
            command_digest: Some(digest(&command)),
            input_root_digest: Some(digest(&root)),
            ..Action::default()
        };
        change(&mut action);
        let action = action.encode_to_vec();
        self.upload(&[&command, &root, &action]).await.pop().unwrap()
    }

    pub(crate) async fn execute(&self, request: ExecuteRequest) -> Result<Waiting, Status> {
        let stream = ExecutionClient::new(self.channel().await).execute(request).await?.into_inner();
        Ok(Waiting { stream })
    }

    /// Waits again for an operation that is known by its name.
    pub(crate) async fn wait_execution(&self, name: &str) -> Result<Waiting, Status> {
        let request = bazel_remote_apis::build::bazel::remote::execution::v2::WaitExecutionRequest {
            name: name.to_owned(),
        };
        let stream = ExecutionClient::new(self.channel().await).wait_execution(request).await?.into_inner();
        Ok(Waiting { stream })
    }

    pub(crate) async fn cached(&self, action: &Digest) -> Result<ActionResult, Status> {
        let request = GetActionResultRequest { action_digest: Some(action.clone()), ..Default::default() };
        ActionCacheClient::new(self.channel().await)
            .get_action_result(request)
            .await
            .map(|told| told.into_inner())
    }

    pub(crate) async fn worker(&self, worker: &str) -> Worker {
        self.worker_offering(worker, &[]).await
    }

    pub(crate) async fn worker_offering(&self, worker: &str, properties: &[(&str, &str)]) -> Worker {
        let mut client = WorkerSchedulerClient::new(self.channel().await);
        let offered = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let registration = RegisterWorkerRequest {
            worker_id: worker.to_owned(),
            platform_properties: offered.collect(),
            ..RegisterWorkerRequest::default()
        };
        client.register_worker(registration).await.unwrap();
        Worker { name: worker.to_owned(), client }
    }

    /// A worker that has not registered since the server's start.
    pub(crate) async fn unregistered_worker(&self, worker: &str) -> Worker {
        Worker { name: worker.to_owned(), client: WorkerSchedulerClient::new(self.channel().await) }
    }

    /// How many tasks the queue of executions ever had, in any state.
    pub(crate) async fn tasks(&self) -> usize {
        let scope = authority::Scope { tenant: Arc::from("default"), workspace: Arc::from("default") };
        self.running.handle.list(scope, Some(Arc::from("exec")), None, None, 1_000).await.unwrap().tasks.len()
    }
}

/// A client that waits for an operation.
pub(crate) struct Waiting {
    stream: Streaming<Operation>,
}

impl Waiting {
    pub(crate) async fn next(&mut self) -> Operation {
        in_time(self.stream.message()).await.unwrap().expect("the stream has ended")
    }

    /// The operation's name, from its first message.
    pub(crate) async fn name(&mut self) -> String {
        self.next().await.name
    }

    /// Waits for the end and gives what was answered.
    pub(crate) async fn response(mut self) -> ExecuteResponse {
        loop {
            let operation = self.next().await;
            if operation.done {
                assert!(in_time(self.stream.message()).await.unwrap().is_none(), "done ends the stream");
                return response(&operation);
            }
        }
    }
}

pub(crate) fn response(operation: &Operation) -> ExecuteResponse {
    match operation.result.as_ref().expect("it is over") {
        operation::Result::Response(any) => ExecuteResponse::decode(&any.value[..]).unwrap(),
        operation::Result::Error(error) => panic!("Operation.error must never be set: {error:?}"),
    }
}

/// The blobs that a status says are missing.
pub(crate) fn subjects(status: &bazel_remote_apis::google::rpc::Status) -> std::collections::HashSet<String> {
    let detailed = Status::with_details(tonic::Code::Unknown, "", status.encode_to_vec().into());
    let details = detailed.get_error_details();
    let violations = &details.precondition_failure().expect("a precondition failure").violations;
    assert!(violations.iter().all(|violation| violation.r#type == "MISSING"));
    violations.iter().map(|violation| violation.subject.clone()).collect()
}

/// A worker whose every step a test decides.
pub(crate) struct Worker {
    name: String,
    pub client: WorkerSchedulerClient<Channel>,
}

impl Worker {
    pub(crate) async fn lease(&mut self) -> LeasedTask {
        let request = LeaseTaskRequest {
            worker_id: self.name.clone(),
            max_tasks: 1,
            timeout_seconds: 20,
            ..LeaseTaskRequest::default()
        };
        in_time(self.client.lease_task(request)).await.unwrap().into_inner().tasks.pop().expect("a task")
    }

    pub(crate) async fn complete(&mut self, task: &LeasedTask, result: ActionResult) {
        self.report(task, |report| {
            report.status = TaskStatus::Completed.into();
            report.result = Some(result.clone());
        })
        .await;
    }

    pub(crate) async fn report(&mut self, task: &LeasedTask, change: impl Fn(&mut UpdateTaskStatusRequest)) {
        self.try_report(task, change).await.unwrap();
    }

    pub(crate) async fn try_report(
        &mut self,
        task: &LeasedTask,
        change: impl Fn(&mut UpdateTaskStatusRequest),
    ) -> Result<UpdateTaskStatusResponse, Status> {
        let mut report = UpdateTaskStatusRequest {
            task_id: task.task_id.clone(),
            worker_id: self.name.clone(),
            lease_id: task.lease_id.clone(),
            ..UpdateTaskStatusRequest::default()
        };
        change(&mut report);
        in_time(self.client.update_task_status(report)).await.map(|answer| answer.into_inner())
    }
}

/// What a test asks to be executed.
pub(crate) fn ask(action: &Digest) -> ExecuteRequest {
    ExecuteRequest { action_digest: Some(action.clone()), ..ExecuteRequest::default() }
}

pub(crate) fn digest(bytes: &[u8]) -> Digest {
    let digest = blobs::Digest::of(blobs::DigestFunction::Sha256, bytes);
    Digest { hash: digest.hash.to_string(), size_bytes: bytes.len() as i64 }
}

pub(crate) async fn in_time<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it is stuck")
}

/// The content of each node. Several nodes have it on one content server.
fn contents(
    setup: &Setup,
    store: &Arc<blobs::Local>,
    server: Option<&StoreServer>,
    directory: &TempDir,
) -> Vec<Content> {
    let mut contents = Vec::new();
    for node in 0..nodes::count() {
        let (blobs, results): (Arc<dyn blobs::Blobs>, Arc<dyn blobs::ActionCache>) = match server {
            None => (store.clone(), store.clone()),
            Some(server) => {
                // A node that starts again need not have its copies.
                let copies =
                    tempfile::Builder::new().prefix("node").tempdir_in(directory.path()).unwrap().keep();
                let node = store_server::node(&server.url, &copies.join(node.to_string()));
                (node.clone(), node)
            }
        };
        let limited: Arc<dyn blobs::Blobs> = match setup.max_reads {
            Some(limit) => Arc::new(blobs::ReadLimiter::with_limit(blobs, limit, SHORT_WAIT)),
            None => Arc::new(blobs::ReadLimiter::new(blobs)),
        };
        contents.push(Content {
            blobs: Arc::new(StallingBlobs { inner: limited, gate: setup.gate.clone() }),
            action_cache: results.clone(),
            results: Results::new(results),
            settings: Settings { is_content_shared: server.is_some(), ..setup.settings },
            instances: server::reapi::Instances::default(),
        });
    }
    contents
}
