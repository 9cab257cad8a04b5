//! A builder and two workers of one tenant, each with a key of its own, and actions with nested inputs.

use bazel_remote_apis::build::bazel::remote::execution::v2::content_addressable_storage_client::ContentAddressableStorageClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, BatchReadBlobsRequest, BatchUpdateBlobsRequest, Command, Digest, Directory, DirectoryNode,
    ExecuteRequest, FileNode, GetTreeRequest, batch_update_blobs_request::Request as Blob,
};
use bazel_remote_apis::google::longrunning::Operation;
use prost::Message;
use serde_json::json;
use tonic::transport::Channel;
use tonic::{Code, Streaming};
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{LeaseTaskRequest, LeasedTask, RegisterWorkerRequest, UpdateTaskStatusRequest};

use crate::foreign_content::answers_about;
use crate::guarded::Guarded;
use crate::keyed::{channel, digest, in_time, upload, with_key};

pub(crate) struct Farm {
    pub guarded: Guarded,
    pub builder: String,
    pub one: FarmWorker,
    pub other: FarmWorker,
}

#[derive(Clone)]
pub(crate) struct FarmWorker {
    pub name: String,
    pub key: String,
}

/// An action and its inputs: a directory with a file, in a root with a file.
pub(crate) struct Inputs {
    pub action: Digest,
    pub command: Digest,
    pub root: Digest,
    pub directory: Digest,
    pub file: Digest,
    pub root_bytes: Vec<u8>,
}

impl Inputs {
    pub(crate) fn all(&self) -> [&Digest; 5] {
        [&self.action, &self.command, &self.root, &self.directory, &self.file]
    }
}

impl Farm {
    pub(crate) async fn start() -> Farm {
        Farm::of(Guarded::start().await).await
    }

    pub(crate) async fn of(guarded: Guarded) -> Farm {
        let builder = guarded.key("ci", "default", &["builder"]).await;
        let mut workers = Vec::new();
        for name in ["one", "other"] {
            let (name, key) = (name.to_owned(), guarded.key(name, "default", &["worker"]).await);
            workers.push(FarmWorker { name, key });
        }
        let (other, one) = (workers.pop().unwrap(), workers.pop().unwrap());
        let farm = Farm { guarded, builder, one, other };
        for worker in [&farm.one, &farm.other] {
            farm.register(worker).await;
        }
        farm
    }

    pub(crate) async fn restarted(self) -> Farm {
        Farm { guarded: self.guarded.restarted().await, ..self }
    }

    pub(crate) async fn scheduler(&self) -> WorkerSchedulerClient<Channel> {
        WorkerSchedulerClient::new(channel(&self.guarded).await)
    }

    pub(crate) async fn cas(&self) -> ContentAddressableStorageClient<Channel> {
        ContentAddressableStorageClient::new(channel(&self.guarded).await)
    }

    pub(crate) async fn register(&self, worker: &FarmWorker) {
        let request = RegisterWorkerRequest {
            worker_id: worker.name.clone(),
            session_id: format!("session of {}", worker.name),
            ..RegisterWorkerRequest::default()
        };
        self.scheduler().await.register_worker(with_key(&worker.key, request)).await.unwrap();
    }

    /// Uploads an action with inputs that no other has.
    pub(crate) async fn inputs(&self, name: &str, more: &[(&str, &[u8])]) -> Inputs {
        let node = |(name, content): &(&str, &[u8])| FileNode {
            name: (*name).to_owned(),
            digest: Some(digest(content)),
            ..FileNode::default()
        };
        let command = Command { arguments: vec![name.to_owned()], ..Command::default() }.encode_to_vec();
        let file = format!("a file of {name}").into_bytes();
        let directory = Directory { files: vec![node(&("f", &file))], ..Directory::default() };
        let directory = directory.encode_to_vec();
        let below = DirectoryNode { name: "d".to_owned(), digest: Some(digest(&directory)) };
        let root = Directory {
            files: more.iter().map(node).collect(),
            directories: vec![below],
            ..Directory::default()
        };
        let root_bytes = root.encode_to_vec();
        let action = Action {
            command_digest: Some(digest(&command)),
            input_root_digest: Some(digest(&root_bytes)),
            ..Action::default()
        };
        let mut blobs: Vec<&[u8]> = more.iter().map(|(_, content)| *content).collect();
        let action = action.encode_to_vec();
        blobs.extend([&action[..], &command, &root_bytes, &directory, &file]);
        upload(&self.guarded, &self.builder, &blobs).await;
        let [action, command, root, directory, file] =
            [&action, &command, &root_bytes, &directory, &file].map(|bytes| digest(bytes));
        Inputs { action, command, root, directory, file, root_bytes }
    }

    pub(crate) async fn execute(&self, inputs: &Inputs) -> Streaming<Operation> {
        let request = ExecuteRequest { action_digest: Some(inputs.action.clone()), ..Default::default() };
        let mut client = ExecutionClient::new(channel(&self.guarded).await);
        client.execute(with_key(&self.builder, request)).await.unwrap().into_inner()
    }

    /// Leases a task of a queue.
    pub(crate) async fn lease(&self, worker: &FarmWorker, queue: &str) -> LeasedTask {
        let request = LeaseTaskRequest {
            worker_id: worker.name.clone(),
            queues: vec![queue.to_owned()],
            max_tasks: 1,
            timeout_seconds: 20,
            ..LeaseTaskRequest::default()
        };
        let leased = in_time(self.scheduler().await.lease_task(with_key(&worker.key, request))).await;
        leased.unwrap().into_inner().tasks.pop().expect("a task")
    }

    /// Has an action executed by a worker, which holds it from now on.
    pub(crate) async fn begin(&self, worker: &FarmWorker, name: &str) -> (Inputs, LeasedTask) {
        let inputs = self.inputs(name, &[]).await;
        drop(self.execute(&inputs).await);
        (inputs, self.lease(worker, "exec").await)
    }

    pub(crate) fn report(&self, worker: &FarmWorker, task: &LeasedTask) -> UpdateTaskStatusRequest {
        UpdateTaskStatusRequest {
            worker_id: worker.name.clone(),
            task_id: task.task_id.clone(),
            lease_id: task.lease_id.clone(),
            ..UpdateTaskStatusRequest::default()
        }
    }

    /// The status of each blob of a batch that is read.
    pub(crate) async fn read(&self, key: &str, digests: &[&Digest]) -> Vec<Code> {
        let digests = digests.iter().map(|digest| (*digest).clone()).collect();
        let request = BatchReadBlobsRequest { digests, ..Default::default() };
        let told = self.cas().await.batch_read_blobs(with_key(key, request)).await.unwrap().into_inner();
        let code = |status: Option<bazel_remote_apis::google::rpc::Status>| {
            Code::from(status.map_or(0, |status| status.code))
        };
        told.responses.into_iter().map(|response| code(response.status)).collect()
    }

    /// The status and the message of a blob that is uploaded.
    pub(crate) async fn put(&self, key: &str, bytes: &[u8]) -> (Code, String) {
        let blob = Blob { digest: Some(digest(bytes)), data: bytes.to_vec(), ..Blob::default() };
        let request = BatchUpdateBlobsRequest { requests: vec![blob], ..Default::default() };
        let told = self.cas().await.batch_update_blobs(with_key(key, request)).await.unwrap().into_inner();
        let status = told.responses.into_iter().next().unwrap().status.unwrap_or_default();
        (Code::from(status.code), status.message)
    }

    /// How many directories a tree has.
    pub(crate) async fn directories(&self, key: &str, root: &Digest) -> usize {
        let request = GetTreeRequest { root_digest: Some(root.clone()), ..Default::default() };
        let mut pages = self.cas().await.get_tree(with_key(key, request)).await.unwrap().into_inner();
        let mut count = 0;
        while let Some(page) = pages.message().await.unwrap() {
            count += page.directories.len();
        }
        count
    }

    /// Checks that every call tells a key about a blob what it tells about one that does not exist.
    pub(crate) async fn assert_hidden(&self, key: &str, blob: &Digest) {
        let nothing = Digest { size_bytes: blob.size_bytes, ..digest(b"what nobody has") };
        let absent = answers_about(&self.guarded, key, &nothing).await;
        assert_eq!(answers_about(&self.guarded, key, blob).await, absent);
        assert_eq!(self.read(key, &[blob]).await, [Code::NotFound]);
    }

    /// Waits until a blob cannot be read any more.
    pub(crate) async fn until_hidden(&self, key: &str, blob: &Digest) {
        let hidden = async { while self.read(key, &[blob]).await != [Code::NotFound] {} };
        in_time(hidden).await;
    }

    /// A task of a queue that is not of remote execution, which a worker holds.
    pub(crate) async fn job(&self, worker: &FarmWorker, queue: &str) -> LeasedTask {
        let body = json!({"queue": queue, "payload": 1});
        let task = self.guarded.post(&self.guarded.admin, "/v1/tasks", body).await;
        assert_eq!(task.status, 201, "{task:?}");
        self.lease(worker, queue).await
    }
}
