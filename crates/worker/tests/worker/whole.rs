//! A task from its submit to its result, through a real server, the agent and a real process.

use std::sync::Arc;

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
