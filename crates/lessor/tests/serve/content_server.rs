//! Tests a cluster whose blobs and results are on a content server: remote execution through all of its nodes, while the owner
//! of the ledger or the content server is lost. All are processes of their own.

use std::time::{Duration, Instant};

use bazel_remote_apis::build::bazel::remote::execution::v2::action_cache_client::ActionCacheClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, Command, Digest, Directory, ExecuteRequest, ExecuteResponse, FileNode, GetActionResultRequest,
};
use bazel_remote_apis::google::longrunning::Operation;
use bazel_remote_apis::google::longrunning::operation::Result as Outcome;
use prost::Message;
use reqwest::StatusCode;
use serde_json::json;
use tonic::{Code, Status, Streaming};

use crate::serve;
use crate::support::cluster::{Cluster, content_server, content_server_at, storage};
use crate::support::gates::Gates;
use crate::support::worker::Worker;
use crate::support::{Server, send_for_headers};

/// At least for this long a call is repeated while the content server is away; the last pause may be left out.
const REPEATED: Duration = Duration::from_secs(2);

/// Stores a blob through a node.
fn put(node: &Server, content: Vec<u8>) -> Digest {
    let size_bytes = i64::try_from(content.len()).unwrap();
    let path = node.put_blob(content);
    Digest { hash: path.rsplit('/').next().unwrap().to_owned(), size_bytes }
}

/// Stores an action through a node. It waits at the gate of this number, and copies its input.
fn action(node: &Server, gates: &Gates, gate: usize) -> Digest {
    let input = put(node, format!("input {gate}").into_bytes());
    let file = FileNode { name: "in".to_owned(), digest: Some(input), ..FileNode::default() };
    let root = Directory { files: vec![file], ..Directory::default() };
    let script = format!("{}; cat in > out", gates.script(gate));
    let command = Command {
        arguments: ["bash", "-c", &script].map(str::to_owned).to_vec(),
        output_paths: vec!["out".to_owned()],
        ..Command::default()
    };
    let action = Action {
        command_digest: Some(put(node, command.encode_to_vec())),
        input_root_digest: Some(put(node, root.encode_to_vec())),
        ..Action::default()
    };
    put(node, action.encode_to_vec())
}

fn get(node: &Server, blob: &Digest) -> (StatusCode, String) {
    let url = format!("{}/cas/{}", node.url(), blob.hash);
    let (status, _, text) = send_for_headers(|client| client.get(url));
    (status, text)
}

/// Reads the output of an action through a node, by its entry in the action cache.
fn output(node: &Server, action: &Digest) -> String {
    let request =
        GetActionResultRequest { action_digest: Some(action.clone()), ..GetActionResultRequest::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(async {
        let mut client = ActionCacheClient::connect(node.url()).await.unwrap();
        client.get_action_result(request).await.unwrap().into_inner()
    });
    let file = result.output_files[0].digest.clone().unwrap();
    let (status, text) = get(node, &file);
    assert!(status.is_success(), "{status}: {text}");
    text
}

/// A call of Execute through a node.
struct Execution {
    runtime: tokio::runtime::Runtime,
    operations: Streaming<Operation>,
}

impl Execution {
    fn begin(node: &Server, action: &Digest) -> Result<Execution, Status> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let request = ExecuteRequest { action_digest: Some(action.clone()), ..ExecuteRequest::default() };
        let operations = runtime.block_on(async {
            let mut client = ExecutionClient::connect(node.url()).await.unwrap();
            client.execute(request).await
        });
        Ok(Execution { runtime, operations: operations?.into_inner() })
    }

    fn exit_code(mut self) -> i32 {
        let last = self.runtime.block_on(async {
            let mut last = None;
            while let Some(operation) = self.operations.message().await.unwrap() {
                last = Some(operation);
            }
            last.unwrap()
        });
        let Some(Outcome::Response(response)) = last.result else { panic!("{last:?}") };
        let response = ExecuteResponse::decode(response.value.as_slice()).unwrap();
        response.result.unwrap_or_else(|| panic!("{:?}", response.status)).exit_code
    }
}

#[test]
fn executions_use_any_node_and_go_on_without_the_owner_and_after_an_absence_of_the_content_server() {
    let mut content = content_server();
    let address = content.address();
    let mut cluster = Cluster::start_with(&["a", "b", "c"], &storage(&content));
    let mut owner = cluster.take_owner();
    let (edge, other) = (&cluster.nodes[0].1, &cluster.nodes[1].1);
    let _worker = Worker::start(other);
    let gates = Gates::open();

    // Uploaded through one node, executed through another, by a worker of a third, and read through the first.
    let first = action(&owner, &gates, 1);
    let execution = Execution::begin(edge, &first).unwrap();
    gates.arrival().let_through();
    assert_eq!(execution.exit_code(), 0);
    assert_eq!(output(&owner, &first), "input 1");

    // The owner is killed while an action runs.
    let second = action(&owner, &gates, 2);
    let execution = Execution::begin(edge, &second).unwrap();
    let arrival = gates.arrival();
    owner.kill();
    arrival.let_through();
    assert_eq!(execution.exit_code(), 0);
    assert_eq!(output(edge, &second), "input 2");

    // The content server is away while an action ends.
    let (third, fourth) = (action(edge, &gates, 3), action(edge, &gates, 4));
    let execution = Execution::begin(edge, &third).unwrap();
    let arrival = gates.arrival();
    content.kill();
    arrival.let_through();
    let begun = Instant::now();
    let (status, text) = get(other, &fourth);
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && text.contains(&address), "{status}: {text}");
    assert!(begun.elapsed() >= REPEATED, "the lookup was given up after {:?}", begun.elapsed());
    let refused = Execution::begin(edge, &fourth).err().expect("it cannot be looked up");
    assert!(refused.code() == Code::Unavailable && refused.message().contains(&address), "{refused}");
    let task = edge.post("/v1/tasks", json!({"queue": "q", "payload": {}}));
    assert_eq!(task["state"], "WAITING", "what needs no content goes on: {task}");
    let _content = content.start_again(|dir| {
        let text = content_server_at(&address).replace("DIR", dir.to_str().unwrap());
        std::fs::write(dir.join("lessor.toml"), text).unwrap();
        serve(dir, &[])
    });
    assert_eq!(execution.exit_code(), 0);
    assert_eq!(output(other, &third), "input 3");
    let execution = Execution::begin(other, &fourth).unwrap();
    gates.arrival().let_through();
    assert_eq!(execution.exit_code(), 0);
    assert!(gates.is_quiet(), "an action ran a second time although its lease lived");
}
