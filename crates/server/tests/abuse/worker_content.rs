//! A key with the role `worker` and no other reads the inputs of the executions that its workers hold. About all other content
//! of its tenant it is told what it is told about content that does not exist.

use bazel_remote_apis::build::bazel::remote::execution::v2::FindMissingBlobsRequest;
use bazel_remote_apis::google::bytestream::ReadRequest;
use bazel_remote_apis::google::bytestream::byte_stream_client::ByteStreamClient;
use futures_util::future::join_all;
use serde_json::json;
use tonic::Code;
use wire::grpc::{TaskStatus, Verdict};

use crate::farm::Farm;
use crate::key_limits::leave;
use crate::keyed::{channel, digest, in_time, upload, with_key};

#[tokio::test]
async fn a_worker_reads_the_inputs_of_its_lease_and_nothing_else() {
    let farm = Farm::start().await;
    let secret = upload(&farm.guarded, &farm.builder, &[b"what the builder keeps"]).await.remove(0);
    let (own, _) = farm.begin(&farm.one, "first").await;
    let (foreign, _) = farm.begin(&farm.other, "second").await;
    for (worker, inputs, others) in [(&farm.one, &own, &foreign), (&farm.other, &foreign, &own)] {
        assert_eq!(farm.read(&worker.key, &inputs.all()).await, [Code::Ok; 5]);
        assert_eq!(farm.directories(&worker.key, &inputs.root).await, 2);
        let blob_digests = inputs.all().into_iter().cloned().collect();
        let request = FindMissingBlobsRequest { blob_digests, ..Default::default() };
        let told = farm.cas().await.find_missing_blobs(with_key(&worker.key, request)).await.unwrap();
        assert!(told.into_inner().missing_blob_digests.is_empty());
        let resource_name = format!("blobs/{}/{}", inputs.file.hash, inputs.file.size_bytes);
        let request = ReadRequest { resource_name, ..ReadRequest::default() };
        let mut client = ByteStreamClient::new(channel(&farm.guarded).await);
        let read = client.read(with_key(&worker.key, request)).await.unwrap().into_inner().message().await;
        assert_eq!(digest(&read.unwrap().unwrap().data), inputs.file);
        for blob in others.all().into_iter().chain([&secret]) {
            farm.assert_hidden(&worker.key, blob).await;
        }
    }
    // A builder reads all of its tenant, also if it is a worker.
    let both = farm.guarded.key("both", "default", &["worker", "builder"]).await;
    for key in [&farm.builder, &both, &farm.guarded.admin] {
        assert_eq!(farm.read(key, &[&secret, &own.file, &foreign.file]).await, [Code::Ok; 3]);
    }
}

/// The file of an input may be a directory of another action. It is readable, and what it names is not.
#[tokio::test]
async fn a_file_that_could_be_a_directory_opens_nothing_below_it() {
    let farm = Farm::start().await;
    let (foreign, _) = farm.begin(&farm.other, "second").await;
    let inputs = farm.inputs("first", &[("f", &foreign.root_bytes)]).await;
    drop(farm.execute(&inputs).await);
    farm.lease(&farm.one, "exec").await;
    assert_eq!(farm.directories(&farm.other.key, &foreign.root).await, 2);
    assert_eq!(farm.directories(&farm.one.key, &foreign.root).await, 1);
    farm.assert_hidden(&farm.one.key, &foreign.directory).await;
    farm.assert_hidden(&farm.one.key, &foreign.file).await;
}

#[tokio::test]
async fn inputs_are_hidden_again_when_the_lease_is_over() {
    let farm = Farm::start().await;
    let (one, mut client) = (&farm.one, farm.scheduler().await);
    // Reported: at once.
    let (reported, task) = farm.begin(one, "reported").await;
    let (kept, _) = farm.begin(one, "kept").await;
    assert_eq!(farm.read(&one.key, &[&reported.file, &kept.file]).await, [Code::Ok; 2]);
    let mut report = farm.report(one, &task);
    report.status = TaskStatus::Completed.into();
    report.result = Some(Default::default());
    let answer = client.update_task_status(with_key(&one.key, report)).await.unwrap().into_inner();
    assert_eq!(answer.verdict(), Verdict::Committed);
    farm.assert_hidden(&one.key, &reported.file).await;
    assert_eq!(farm.read(&one.key, &[&kept.file]).await, [Code::Ok], "another lease");
    // Given back.
    let (released, task) = farm.begin(one, "released").await;
    assert_eq!(farm.read(&one.key, &[&released.file]).await, [Code::Ok]);
    let mut report = farm.report(one, &task);
    report.release = true;
    client.update_task_status(with_key(&one.key, report)).await.unwrap();
    farm.until_hidden(&one.key, &released.file).await;
    // The worker leaves.
    client.unregister_worker(with_key(&one.key, leave(&one.name))).await.unwrap();
    farm.until_hidden(&one.key, &kept.file).await;
    farm.assert_hidden(&one.key, &kept.root).await;
}

#[tokio::test]
async fn inputs_are_hidden_again_when_the_lease_expires() {
    let farm = Farm::start().await;
    let queue = farm.guarded.request(&farm.guarded.admin, "PUT", "/v1/queues/exec");
    let told = crate::support::send(queue.json(&json!({"leaseMs": 1_000, "maxAttempts": 1}))).await;
    assert_eq!(told.status, 200, "{told:?}");
    let (inputs, _) = farm.begin(&farm.one, "slow").await;
    assert_eq!(farm.read(&farm.one.key, &[&inputs.file]).await, [Code::Ok]);
    farm.until_hidden(&farm.one.key, &inputs.file).await;
    let (code, _) = farm.put(&farm.one.key, b"late").await;
    assert_eq!(code, Code::PermissionDenied);
}

/// Two attempts of one action, after which the first worker reads nothing of it.
#[tokio::test]
async fn the_next_holder_of_an_action_reads_its_inputs_and_the_last_one_does_not() {
    let farm = Farm::start().await;
    let (inputs, task) = farm.begin(&farm.one, "shared").await;
    assert_eq!(farm.read(&farm.one.key, &inputs.all()).await, [Code::Ok; 5]);
    let mut report = farm.report(&farm.one, &task);
    report.release = true;
    farm.scheduler().await.update_task_status(with_key(&farm.one.key, report)).await.unwrap();
    farm.lease(&farm.other, "exec").await;
    assert_eq!(farm.read(&farm.other.key, &inputs.all()).await, [Code::Ok; 5]);
    farm.until_hidden(&farm.one.key, &inputs.file).await;
}

#[tokio::test]
async fn leases_of_the_other_contracts_open_their_inputs_too() {
    let farm = Farm::start().await;
    for (path, body) in [
        ("/v1/leases", json!({"workerId": "http", "queues": ["exec"], "waitMs": 20_000})),
        (
            "/internal/worker/claim",
            json!({"worker_id": "claims", "streams": ["exec"], "max_wait_ms": 20_000}),
        ),
    ] {
        let inputs = farm.inputs(path, &[]).await;
        drop(farm.execute(&inputs).await);
        farm.assert_hidden(&farm.one.key, &inputs.file).await;
        let told = farm.guarded.post(&farm.one.key, path, body).await;
        assert_eq!(told.status, 200, "{told:?}");
        assert_eq!(farm.read(&farm.one.key, &inputs.all()).await, [Code::Ok; 5], "{path}");
        farm.assert_hidden(&farm.other.key, &inputs.file).await;
    }
}

/// Whoever may submit tasks is no builder: a task that looks like an execution opens no content.
#[tokio::test]
async fn a_forged_execution_opens_nothing() {
    let farm = Farm::start().await;
    let (foreign, task) = farm.begin(&farm.other, "second").await;
    let shown = farm.guarded.get(&farm.guarded.admin, &format!("/v1/tasks/{}", task.task_id)).await;
    let forged = shown.body["payload"].clone();
    assert!(forged.is_object(), "{shown:?}");
    let submitter = farm.guarded.key("submitter", "default", &["submitter"]).await;
    let body = json!({"queue": "exec", "payload": forged});
    let told = farm.guarded.post(&submitter, "/v1/tasks", body).await;
    assert_eq!(told.status, 201, "{told:?}");
    farm.lease(&farm.one, "exec").await;
    for blob in foreign.all() {
        farm.assert_hidden(&farm.one.key, blob).await;
    }
}

/// A worker that works on while the server restarts must not take its inputs for missing.
#[tokio::test]
async fn a_lease_from_before_a_restart_opens_its_inputs_when_its_worker_is_back() {
    let farm = Farm::start().await;
    let (own, _) = farm.begin(&farm.one, "first").await;
    let (foreign, _) = farm.begin(&farm.other, "second").await;
    let farm = farm.restarted().await;
    for worker in [&farm.one, &farm.other] {
        let read = farm.read(&worker.key, &[&own.file, &digest(b"nothing")]).await;
        assert_eq!(read, [Code::Unavailable; 2], "whatever it asks for");
        assert_eq!(farm.put(&worker.key, b"an output").await.0, Code::Unavailable);
    }
    farm.register(&farm.one).await;
    assert_eq!(farm.read(&farm.one.key, &own.all()).await, [Code::Ok; 5]);
    assert_eq!(farm.put(&farm.one.key, b"an output").await.0, Code::Ok);
    assert_eq!(farm.read(&farm.other.key, &[&foreign.file]).await, [Code::Unavailable]);
    farm.register(&farm.other).await;
    assert_eq!(farm.read(&farm.other.key, &foreign.all()).await, [Code::Ok; 5]);
    farm.assert_hidden(&farm.one.key, &foreign.file).await;
    farm.assert_hidden(&farm.other.key, &own.file).await;
}

/// Regression: each search for the inputs of a lease kept one permit of a small pool and needed another one.
#[tokio::test]
async fn a6_the_large_inputs_of_many_leases_are_found_at_once() {
    let farm = Farm::start().await;
    let names: Vec<String> = (0..800).map(|n| format!("{n:0>200}")).collect();
    let mut actions = Vec::new();
    for n in 0..8 {
        let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b"x"[..])).collect();
        let inputs = farm.inputs(&format!("action {n}"), &files).await;
        assert!(inputs.root_bytes.len() > 128 * 1_024);
        drop(farm.execute(&inputs).await);
        farm.lease(&farm.one, "exec").await;
        actions.push(inputs);
    }
    let files = actions.iter().map(|inputs| async { farm.read(&farm.one.key, &[&inputs.file]).await });
    for read in in_time(join_all(files)).await {
        assert_eq!(read, [Code::Ok]);
    }
}

/// During an upgrade a node may be newer than the owner. It knows the leases that were granted through it.
#[tokio::test]
async fn a_node_whose_owner_is_of_an_earlier_version_opens_the_inputs_of_the_leases_that_it_gave() {
    crate::support::nodes::through_an_edge_of_an_earlier_owner(work_through_one_node()).await;
}

async fn work_through_one_node() {
    let farm = Farm::start().await;
    assert_eq!(farm.put(&farm.one.key, b"an output").await.0, Code::PermissionDenied);
    let (own, task) = farm.begin(&farm.one, "first").await;
    let (foreign, _) = farm.begin(&farm.other, "second").await;
    assert_eq!(farm.read(&farm.one.key, &own.all()).await, [Code::Ok; 5]);
    assert_eq!(farm.put(&farm.one.key, b"an output").await.0, Code::Ok);
    farm.assert_hidden(&farm.one.key, &foreign.file).await;
    let mut report = farm.report(&farm.one, &task);
    report.release = true;
    farm.scheduler().await.update_task_status(with_key(&farm.one.key, report)).await.unwrap();
    farm.until_hidden(&farm.one.key, &own.file).await;
}
