//! A key with the role `worker` and no other uploads while its workers hold leases, and so much for each. Nobody else sees what
//! it uploaded until a report names it.

use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, Digest, Directory, FileNode, FindMissingBlobsRequest, OutputDirectory, OutputFile, Tree,
};
use prost::Message;
use serde_json::json;
use tonic::{Code, Status};
use wire::grpc::{LeasedTask, TaskStatus, Verdict};

use crate::farm::{Farm, FarmWorker};
use crate::foreign_content::{said, write};
use crate::guarded::Guarded;
use crate::keyed::{digest, upload, with_key};

/// Large enough for a file of its own in the store.
const LARGE_BYTES: usize = 600_000;

fn large(seed: u8) -> Vec<u8> {
    (0..LARGE_BYTES).map(|n| (n * n / 7) as u8 ^ seed).collect()
}

async fn write_whole(farm: &Farm, worker: &FarmWorker, content: &[u8]) -> Result<(), Status> {
    let blob = digest(content);
    let name = format!("uploads/u-1/blobs/{}/{}", blob.hash, blob.size_bytes);
    write(&farm.guarded, &worker.key, &name, content, 0, true).await.map(drop)
}

fn output(blob: &Digest) -> ActionResult {
    let file = OutputFile { path: "out".into(), digest: Some(blob.clone()), ..OutputFile::default() };
    ActionResult { output_files: vec![file], ..ActionResult::default() }
}

async fn complete(
    farm: &Farm,
    worker: &FarmWorker,
    task: &LeasedTask,
    result: ActionResult,
) -> Result<Verdict, Status> {
    let mut report = farm.report(worker, task);
    report.status = TaskStatus::Completed.into();
    report.result = Some(result);
    let answer = farm.scheduler().await.update_task_status(with_key(&worker.key, report)).await?;
    Ok(answer.into_inner().verdict())
}

async fn missing(farm: &Farm, key: &str, blobs: &[&Digest]) -> Vec<Digest> {
    let blob_digests = blobs.iter().map(|blob| (*blob).clone()).collect();
    let request = FindMissingBlobsRequest { blob_digests, ..Default::default() };
    let told = farm.cas().await.find_missing_blobs(with_key(key, request)).await.unwrap();
    told.into_inner().missing_blob_digests
}

#[tokio::test]
async fn without_a_lease_nothing_is_uploaded_and_the_refusal_says_why() {
    let farm = Farm::start().await;
    let (code, message) = farm.put(&farm.one.key, b"an output").await;
    assert_eq!(code, Code::PermissionDenied);
    assert!(message.contains("only while it holds a lease"), "{message}");
    let refused = write_whole(&farm, &farm.one, &large(0)).await.unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::PermissionDenied, &*message));
    // The lease of another identity does not help.
    let (_, task) = farm.begin(&farm.other, "second").await;
    assert_eq!(farm.put(&farm.one.key, b"an output").await.0, Code::PermissionDenied);
    // Nor does one that is over.
    assert_eq!(farm.put(&farm.other.key, b"an output").await.0, Code::Ok);
    let result = ActionResult::default();
    assert_eq!(complete(&farm, &farm.other, &task, result).await.unwrap(), Verdict::Committed);
    assert_eq!(farm.put(&farm.other.key, b"another").await.0, Code::PermissionDenied);
    farm.assert_hidden(&farm.builder, &digest(b"an output")).await;
}

#[tokio::test]
async fn outputs_are_seen_by_others_when_the_completion_that_names_them_is_committed() {
    let farm = Farm::start().await;
    let (_, task) = farm.begin(&farm.one, "first").await;
    let (small, big) = (b"a small output".to_vec(), large(1));
    let (unnamed, kept) = (large(2), b"unnamed".to_vec());
    for content in [&small, &kept] {
        assert_eq!(farm.put(&farm.one.key, content).await.0, Code::Ok);
    }
    for content in [&big, &unnamed] {
        write_whole(&farm, &farm.one, content).await.unwrap();
    }
    let [small, big, unnamed, kept] = [&small, &big, &unnamed, &kept].map(|content| digest(content));
    let all = [&small, &big, &unnamed, &kept];
    assert!(missing(&farm, &farm.one.key, &all).await.is_empty(), "its own");
    assert_eq!(farm.read(&farm.one.key, &all).await, [Code::Ok; 4]);
    for key in [&farm.builder, &farm.other.key] {
        for blob in all {
            farm.assert_hidden(key, blob).await;
        }
    }
    let result = ActionResult { stdout_digest: Some(small.clone()), ..output(&big) };
    assert_eq!(complete(&farm, &farm.one, &task, result).await.unwrap(), Verdict::Committed);
    assert_eq!(farm.read(&farm.builder, &[&small, &big]).await, [Code::Ok; 2]);
    for blob in [&unnamed, &kept] {
        farm.assert_hidden(&farm.builder, blob).await;
    }
    // Whoever has the content may upload it, too, and finds nothing of the worker's in the way.
    upload(&farm.guarded, &farm.builder, &[b"unnamed"]).await;
    assert_eq!(farm.read(&farm.builder, &[&kept]).await, [Code::Ok]);
    // The next task of the worker may have the same outputs, which need not be uploaded again.
    let (_, task) = farm.begin(&farm.one, "next").await;
    assert!(missing(&farm, &farm.one.key, &[&small, &big, &unnamed]).await.is_empty());
    assert_eq!(complete(&farm, &farm.one, &task, output(&big)).await.unwrap(), Verdict::Committed);
    farm.assert_hidden(&farm.other.key, &big).await;
}

#[tokio::test]
async fn the_files_of_an_output_directory_are_seen_with_it() {
    let farm = Farm::start().await;
    let (_, task) = farm.begin(&farm.one, "first").await;
    let directory = |content: &[u8]| {
        let file = FileNode { name: "f".into(), digest: Some(digest(content)), ..FileNode::default() };
        Directory { files: vec![file], ..Directory::default() }
    };
    let tree = Tree { root: Some(directory(b"root")), children: vec![directory(b"child")] }.encode_to_vec();
    let named = OutputDirectory { tree_digest: Some(digest(&tree)), ..OutputDirectory::default() };
    let result = ActionResult { output_directories: vec![named], ..ActionResult::default() };
    for content in [&tree[..], b"root"] {
        assert_eq!(farm.put(&farm.one.key, content).await.0, Code::Ok);
    }
    let refused = complete(&farm, &farm.one, &task, result.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    farm.assert_hidden(&farm.builder, &digest(b"root")).await;
    assert_eq!(farm.put(&farm.one.key, b"child").await.0, Code::Ok);
    assert_eq!(complete(&farm, &farm.one, &task, result).await.unwrap(), Verdict::Committed);
    let [tree, root, child] = [&tree[..], b"root", b"child"].map(digest);
    assert_eq!(farm.read(&farm.builder, &[&tree, &root, &child]).await, [Code::Ok; 3]);
}

/// A worker that names a digest as its output would learn whether somebody has the blob, and could read it afterwards.
#[tokio::test]
async fn a_digest_that_the_worker_cannot_read_is_no_output_of_its() {
    let farm = Farm::start().await;
    let secret = upload(&farm.guarded, &farm.builder, &[b"what the builder keeps"]).await.remove(0);
    let (inputs, task) = farm.begin(&farm.one, "first").await;
    let nothing = Digest { size_bytes: secret.size_bytes, ..digest(b"what nobody has") };
    let mut answers = Vec::new();
    for blob in [&secret, &nothing] {
        let status = complete(&farm, &farm.one, &task, output(blob)).await.unwrap_err();
        let (code, message, details) = said(status);
        let details = String::from_utf8_lossy(&details).replace(&blob.hash, "HASH");
        answers.push((code, message, details));
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].0, Code::FailedPrecondition);
    farm.assert_hidden(&farm.one.key, &secret).await;
    // Nor does an upload end early because somebody has the blob.
    let name = format!("uploads/u-1/blobs/{}/{}", secret.hash, secret.size_bytes);
    let told = write(&farm.guarded, &farm.one.key, &name, b"what", 0, false).await.unwrap();
    assert_eq!(told.committed_size, 0);
    let wrong = write(&farm.guarded, &farm.one.key, &name, b"what the worker thinks", 0, true).await;
    assert_eq!(wrong.unwrap_err().code(), Code::InvalidArgument);
    farm.assert_hidden(&farm.one.key, &secret).await;
    // An input may be an output as it is, and so may what the worker has.
    let result = output(&inputs.file);
    assert_eq!(complete(&farm, &farm.one, &task, result).await.unwrap(), Verdict::Committed);
    let (_, task) = farm.begin(&farm.one, "second").await;
    assert_eq!(farm.put(&farm.one.key, b"what the builder keeps").await.0, Code::Ok);
    assert_eq!(complete(&farm, &farm.one, &task, output(&secret)).await.unwrap(), Verdict::Committed);
}

#[tokio::test]
async fn uploads_are_bounded_for_each_lease() {
    let guarded = Guarded::start().await;
    let mut options = guarded.served.options.clone();
    options.content.as_mut().unwrap().settings.max_upload_bytes_per_lease = 1_000_000;
    let farm = Farm::of(guarded.restarted_with(options).await).await;
    let (_, task) = farm.begin(&farm.one, "first").await;
    write_whole(&farm, &farm.one, &large(1)).await.unwrap();
    write_whole(&farm, &farm.one, &large(1)).await.unwrap();
    let refused = write_whole(&farm, &farm.one, &large(2)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("max_upload_mib_per_lease"), "{refused:?}");
    let (code, message) = farm.put(&farm.one.key, &vec![7; 500_000]).await;
    assert_eq!((code, &*message), (Code::ResourceExhausted, &*refused.message().replace("600000", "500000")));
    assert_eq!(farm.put(&farm.one.key, &vec![7; 300_000]).await.0, Code::Ok, "what fits");
    // An upload that came to nothing does not count.
    let bad = format!("uploads/u-2/blobs/{}/100000", digest(b"other").hash);
    for _ in 0..3 {
        let refused = write(&farm.guarded, &farm.one.key, &bad, &vec![1; 100_000], 0, true).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    }
    assert_eq!(farm.put(&farm.one.key, &vec![8; 90_000]).await.0, Code::Ok);
    // Another lease has its own bytes, and others are not concerned.
    farm.begin(&farm.other, "second").await;
    write_whole(&farm, &farm.other, &large(2)).await.unwrap();
    farm.begin(&farm.one, "third").await;
    write_whole(&farm, &farm.one, &large(2)).await.unwrap();
    let result = output(&digest(&large(1)));
    assert_eq!(complete(&farm, &farm.one, &task, result).await.unwrap(), Verdict::Committed);
    write_whole(&farm, &farm.one, &large(3)).await.unwrap_err();
    upload(&farm.guarded, &farm.builder, &[&vec![9; 1_500_000]]).await;
}

/// Large outputs of commands are in the content store, and the report names them.
#[tokio::test]
async fn a_task_that_is_no_execution_uploads_what_its_report_names() {
    let farm = Farm::start().await;
    let text = |content: &[u8]| {
        let digest = digest(content);
        format!("{}/{}", digest.hash, digest.size_bytes)
    };
    let task = farm.job(&farm.one, "commands").await;
    for content in [&b"standard output"[..], b"not named"] {
        assert_eq!(farm.put(&farm.one.key, content).await.0, Code::Ok);
    }
    let mut report = farm.report(&farm.one, &task);
    report.status = TaskStatus::Completed.into();
    report.result_json = json!({"stdoutDigest": text(b"standard output")}).to_string().into_bytes().into();
    let mut client = farm.scheduler().await;
    client.update_task_status(with_key(&farm.one.key, report)).await.unwrap();
    assert_eq!(farm.read(&farm.builder, &[&digest(b"standard output")]).await, [Code::Ok]);
    farm.assert_hidden(&farm.builder, &digest(b"not named")).await;
    assert_eq!(farm.put(&farm.one.key, b"later").await.0, Code::PermissionDenied);

    let task = farm.job(&farm.one, "commands").await;
    assert_eq!(farm.put(&farm.one.key, b"standard error").await.0, Code::Ok);
    let mut report = farm.report(&farm.one, &task);
    report.status = TaskStatus::Failed.into();
    report.error_message = format!("exit code 1, standard error {}; sorry", text(b"standard error"));
    client.update_task_status(with_key(&farm.one.key, report)).await.unwrap();
    assert_eq!(farm.read(&farm.builder, &[&digest(b"standard error")]).await, [Code::Ok]);
}

/// What was uploaded before a restart is still the worker's.
#[tokio::test]
async fn uploads_outlive_a_restart_and_stay_hidden() {
    let farm = Farm::start().await;
    let (_, task) = farm.begin(&farm.one, "first").await;
    let content = large(5);
    write_whole(&farm, &farm.one, &content).await.unwrap();
    let farm = farm.restarted().await;
    farm.register(&farm.one).await;
    farm.assert_hidden(&farm.builder, &digest(&content)).await;
    assert!(missing(&farm, &farm.one.key, &[&digest(&content)]).await.is_empty());
    let result = output(&digest(&content));
    assert_eq!(complete(&farm, &farm.one, &task, result).await.unwrap(), Verdict::Committed);
    assert_eq!(farm.read(&farm.builder, &[&digest(&content)]).await, [Code::Ok]);
}
