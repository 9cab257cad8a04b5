//! A task from its submit to its result, through a real server, the agent and a real process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use bazel_remote_apis::build::bazel::remote::execution::v2::RequestMetadata;
use bytes::Bytes;
use prost::Message;
use wire::grpc::{ActionResult, SubmitTask};
use worker::executors::{self, Backend, ExecutorOptions};
use worker::{ActionOptions, Agent, Config, Stopper, Work};

use super::actions::support::{Stage, Tree, sh, strings};
use super::agent::support::{Served, in_time};

fn execution(action: &blobs::Digest) -> SubmitTask {
    let payload = serde_json::json!({
        "operationName": "operations/1", "actionDigest": action.to_string(),
        "digestFunction": "SHA256", "instanceName": "", "somethingNew": true,
        "origin": {"tool": "bazel 8.0", "target": "//a:b"},
    });
    SubmitTask {
        queue: "exec".to_owned(),
        payload: Bytes::from(payload.to_string()),
        max_attempts: 1,
        ..SubmitTask::default()
    }
}

/// How long the content store is tried for here, in place of a minute.
const SHORT_PATIENCE: Duration = Duration::from_millis(300);

/// Nobody is there; the name means nothing; somebody hangs up at once. Each time the attempt fails for the infrastructure and
/// another one follows, after pauses.
#[tokio::test]
async fn n14_a_content_store_that_cannot_be_reached_fails_the_attempt_and_not_the_task() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let rude = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rude_address = rude.local_addr().unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    tokio::spawn(async move {
        while rude.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let served = Served::start().await;
    let stage = Stage::new().await;
    let action = stage.action(sh(":"), &Tree::default(), None);
    // No name has a part of 64 bytes, so that no name server is asked.
    let nameless = format!("http://{}.invalid:1", "x".repeat(64));
    for url in [format!("http://{closed}"), nameless, format!("http://{rude_address}")] {
        let dir = tempfile::tempdir().unwrap();
        let config =
            Config::new(format!("http://{}", served.address), "cut-off", ActionOptions::below(dir.path()));
        let options = reapi_client::Options { patience: SHORT_PATIENCE, ..Default::default() };
        let cas = Arc::new(reapi_client::Client::new(&url, &options).unwrap());
        let executor =
            executors::open(&ExecutorOptions::new(Backend::Host, "cut-off", dir.path())).await.unwrap();
        let work = Work::open(&config, executor, cas).await.unwrap();
        let stop = Stopper::new();
        let agent = tokio::spawn(Agent::serve(config, Arc::new(work), stop.clone()));
        let id = served.submit(SubmitTask { max_attempts: 2, ..execution(&action) }).await;
        let failed = served.until(&id, |task| task["state"] == "FAILED").await;
        let error = &failed["error"];
        assert_eq!(
            (&error["code"], &error["category"]),
            (&"cas_unavailable".into(), &"INFRASTRUCTURE".into())
        );
        assert_eq!(failed["attempt"], 2, "{failed}");
        stop.stop();
        in_time(agent).await.unwrap().unwrap();
    }
    // Of two attempts, each of which may pause at least 50 ms between two tries of each of a few calls.
    let calls = calls.load(Ordering::SeqCst);
    assert!((2..=60).contains(&calls), "{calls} calls");
}

#[tokio::test]
async fn r52_an_action_is_leased_run_and_committed_with_its_times_and_its_origin() {
    let served = Served::start().await;
    let stage = Stage::new().await;
    let dir = tempfile::tempdir().unwrap();
    let url = format!("http://{}", served.address);
    let config = Config::new(url, "whole", ActionOptions::below(dir.path()));
    let (stop, cas) = (Stopper::new(), stage.cas.clone());
    let executor = ExecutorOptions::new(Backend::Host, "whole", dir.path());
    let stopped = stop.clone();
    let work = Work::open(&config, executors::open(&executor).await.unwrap(), cas).await.unwrap();
    let agent = tokio::spawn(Agent::serve(config, Arc::new(work), stopped));

    let mut command = sh("cat in > out; echo done; exit 7");
    command.output_paths = strings(&["out"]);
    let inputs = Tree::default().file(&stage.cas, "in", "content");
    let action = stage.action(command, &inputs, None);
    let id = served.submit(execution(&action)).await;
    let done = served.until(&id, |task| task["state"] == "COMPLETED").await;
    assert_eq!(done["result"]["exitCode"], 7);
    let encoded = done["result"]["actionResult"].as_str().unwrap();
    let result = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
    let result = ActionResult::decode(&result[..]).unwrap();
    assert_eq!(stage.stdout(&result), "done\n");
    assert_eq!(stage.text(result.output_files[0].digest.as_ref()), "content");
    let metadata = result.execution_metadata.unwrap();
    assert_eq!(metadata.worker, "whole");
    let seconds = |time: Option<bazel_remote_apis::google::protobuf::Timestamp>| time.unwrap().seconds;
    assert!(seconds(metadata.queued_timestamp) > 0);
    assert!(seconds(metadata.queued_timestamp) <= seconds(metadata.worker_completed_timestamp));
    let origin = metadata.auxiliary_metadata.iter().find(|any| any.type_url.ends_with(".RequestMetadata"));
    let origin = RequestMetadata::decode(&origin.unwrap().value[..]).unwrap();
    let tool = origin.tool_details.unwrap();
    assert_eq!((tool.tool_name.as_str(), tool.tool_version.as_str()), ("bazel", "8.0"));
    assert_eq!(origin.target_id, "//a:b");

    let inputs = Tree::default().file(&stage.cas, "in", "new");
    let missing = blobs::Digest::of(blobs::DigestFunction::Sha256, b"new");
    let action = stage.action(sh(":"), &inputs, None);
    stage.cas.forget(&missing);
    let id = served.submit(execution(&action)).await;
    let failed = served.until(&id, |task| task["state"] == "FAILED").await;
    assert_eq!(failed["error"]["code"], "missing_inputs");
    assert_eq!(failed["error"]["message"], format!("[\"{missing}\"]"));

    let id = served.submit(SubmitTask { payload: Bytes::from_static(b"{}"), ..execution(&action) }).await;
    let failed = served.until(&id, |task| task["state"] == "FAILED").await;
    assert_eq!(failed["error"]["code"], "invalid_payload");

    stop.stop();
    in_time(agent).await.unwrap().unwrap();
}

/// R36, R42: what a command wrote until it was stopped is reported with its failure.
#[tokio::test]
async fn r42_the_output_of_a_stopped_action_is_reported() {
    let served = Served::start().await;
    let stage = Stage::new().await;
    let dir = tempfile::tempdir().unwrap();
    let config = Config::new(format!("http://{}", served.address), "stops", ActionOptions::below(dir.path()));
    let executor = ExecutorOptions::new(Backend::Host, "stops", dir.path());
    let executor = executors::open(&executor).await.unwrap();
    let work = Work::open(&config, executor, stage.cas.clone()).await.unwrap();
    let stop = Stopper::new();
    let agent = tokio::spawn(Agent::serve(config, Arc::new(work), stop.clone()));
    let mark = dir.path().join("begun");
    let script = |n: u32| format!("echo {n}; : > {}{n}; sleep 600", mark.display());

    let action = stage.action(sh(&script(1)), &Tree::default(), Some(Duration::from_secs(2)));
    let id = served.submit(execution(&action)).await;
    let failed = served.until(&id, |task| task["state"] == "FAILED").await;
    assert_eq!(failed["error"]["code"], "timeout");
    assert_eq!(stage.stdout(&partial(&served, &id).await), "1\n");

    let action = stage.action(sh(&script(2)), &Tree::default(), None);
    let id = served.submit(execution(&action)).await;
    served.until(&id, |_| dir.path().join("begun2").exists()).await;
    served.cancel(&id).await;
    let dead = served.until(&id, |task| task["state"] == "DEAD").await;
    assert_eq!(dead["error"]["code"], "cancelled");
    assert_eq!(stage.stdout(&partial(&served, &id).await), "2\n");
    stop.stop();
    in_time(agent).await.unwrap().unwrap();
}

async fn partial(served: &Served, id: &str) -> ActionResult {
    let history = served.http("GET", &format!("/v1/tasks/{id}/history"), "").await;
    let last = history["events"].as_array().unwrap().last().unwrap();
    let encoded = last["partialProgress"]["actionResult"].as_str().unwrap_or_else(|| panic!("{last}"));
    let result = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
    ActionResult::decode(&result[..]).unwrap()
}
