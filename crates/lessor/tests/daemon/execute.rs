//! `lessor worker execute`: S3-50.

use std::path::Path;

use bazel_remote_apis::build::bazel::remote::execution::v2::action_cache_client::ActionCacheClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::command::EnvironmentVariable;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, ActionResult, Command, Digest, Directory, FileNode, OutputFile, UpdateActionResultRequest,
};
use prost::Message;
use serde_json::json;

use crate::support::{Ran, Server, lessor};
use crate::support_worker::server;

/// Puts a blob into the store, and gives its digest.
async fn put(server: &Server, content: Vec<u8>) -> Digest {
    let digest = blobs::Digest::of(blobs::DigestFunction::Sha256, &content);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/cas/{}", server.url(), digest.hash);
    client.put(url).body(content).send().await.unwrap().error_for_status().unwrap();
    Digest { hash: digest.hash.to_string(), size_bytes: i64::try_from(digest.size).unwrap() }
}

/// An action that reads an input and writes an output.
async fn action(server: &Server, script: &str) -> Digest {
    let input = put(server, b"content".to_vec()).await;
    let file = FileNode { name: "in".to_owned(), digest: Some(input), ..FileNode::default() };
    let root = Directory { files: vec![file], ..Directory::default() };
    let command = Command {
        arguments: ["sh", "-c", script].map(str::to_owned).to_vec(),
        environment_variables: vec![EnvironmentVariable {
            name: "WORD".to_owned(),
            value: "hello".to_owned(),
        }],
        output_paths: vec!["out/file".to_owned()],
        ..Command::default()
    };
    let action = Action {
        command_digest: Some(put(server, command.encode_to_vec()).await),
        input_root_digest: Some(put(server, root.encode_to_vec()).await),
        ..Action::default()
    };
    put(server, action.encode_to_vec()).await
}

fn execute(server: &Server, action: &Digest, directory: &Path, more: &[&str]) -> Ran {
    let name = format!("{}/{}", action.hash, action.size_bytes);
    let mut command = lessor(&["worker", "execute", "--cas-url", &server.url(), "--action-digest", &name]);
    Ran::from(command.arg("--work-dir").arg(directory).args(more).output().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_50_one_action_is_run_without_a_coordinator_and_its_directory_stays() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let action = action(&server, "cat in > out/file; echo $WORD; echo oh >&2").await;
    let directory = dir.path().join("look");
    let summary = execute(&server, &action, &directory, &["--backend", "host", "--json"]).ok().json();
    assert_eq!((&summary["exitCode"], &summary["inputFiles"]), (&json!(0), &json!(1)), "{summary}");
    assert_eq!(summary["environment"]["WORD"], "hello");
    let content = blobs::Digest::of(blobs::DigestFunction::Sha256, b"content").to_string();
    let output = json!([{"kind": "file", "path": "out/file", "content": content}]);
    assert_eq!(summary["outputs"], output, "{summary}");
    assert!(summary.get("differences").is_none(), "nothing was kept before: {summary}");
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    assert_eq!((read("root/out/file").as_str(), read("stdout").as_str()), ("content", "hello\n"));
    assert_eq!(read("stderr"), "oh\n");
    execute(&server, &action, &directory, &[]).fails(1, &["is not empty"]);
    let tasks = tokio::task::block_in_place(|| server.get("/v1/tasks"));
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 0, "nobody heard of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_50_a_result_that_was_kept_before_is_compared() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let action = action(&server, "cat in > out/file; echo said").await;
    let file = OutputFile {
        path: "out/file".to_owned(),
        digest: Some(put(&server, b"content".to_vec()).await),
        ..OutputFile::default()
    };
    let cached = ActionResult {
        output_files: vec![file.clone()],
        stdout_digest: Some(put(&server, b"said\n".to_vec()).await),
        ..ActionResult::default()
    };
    let mut cache = ActionCacheClient::connect(server.url()).await.unwrap();
    let mut keep = async |result: ActionResult| {
        let request = UpdateActionResultRequest {
            action_digest: Some(action.clone()),
            action_result: Some(result),
            ..UpdateActionResultRequest::default()
        };
        cache.update_action_result(request).await.unwrap();
    };
    keep(cached.clone()).await;
    let same = execute(&server, &action, &dir.path().join("same"), &["--json"]).ok().json();
    assert_eq!(same["differences"], json!([]), "{same}");

    let other = put(&server, b"other".to_vec()).await;
    let file = OutputFile { digest: Some(other.clone()), ..file };
    keep(ActionResult { output_files: vec![file], stdout_digest: None, ..cached }).await;
    let text = execute(&server, &action, &dir.path().join("other"), &[]).ok().stdout;
    assert!(text.contains("Differs from the result in the action cache"), "{text}");
    assert!(text.contains(&format!("kept file {}/5", other.hash)), "{text}");
    assert!(text.contains("kept nothing"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_50_what_cannot_be_run_is_said() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let failing = action(&server, "exit 7").await;
    let ran = execute(&server, &failing, &dir.path().join("a"), &["--json"]);
    assert_eq!((ran.code, &ran.json()["exitCode"]), (5, &json!(7)), "{ran:?}");
    let unknown = blobs::Digest::of(blobs::DigestFunction::Sha256, b"nothing");
    let unknown = Digest { hash: unknown.hash.to_string(), size_bytes: 7 };
    execute(&server, &unknown, &dir.path().join("b"), &[]).fails(1, &["lacks 1 blob", &unknown.hash]);
    let name = format!("{}/7", unknown.hash);
    let mut nobody = lessor(&[
        "worker",
        "execute",
        "--cas-url",
        "http://127.0.0.1:1",
        "--action-digest",
        &name,
        "--work-dir",
    ]);
    let ran = Ran::from(nobody.arg(dir.path().join("d")).output().unwrap());
    ran.fails(1, &["no content store answers at http://127.0.0.1:1", "--cas-url"]);
    let bad = Digest { hash: "x".to_owned(), size_bytes: 1 };
    execute(&server, &bad, &dir.path().join("c"), &[]).fails(1, &["is no digest of an action"]);
}
