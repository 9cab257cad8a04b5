//! A task from its submit to its result, through a real server, the agent and a real process.

use std::sync::Arc;

use base64::Engine;
use bytes::Bytes;
use prost::Message;
use wire::grpc::{ActionResult, SubmitTask};
use worker::executors::Host;
use worker::{ActionOptions, Agent, Config, Stopper};

use super::actions::support::{Stage, Tree, sh, strings};
use super::agent::support::{Served, in_time};

fn execution(action: &blobs::Digest) -> SubmitTask {
    let payload = serde_json::json!({
        "operationName": "operations/1", "actionDigest": action.to_string(),
        "digestFunction": "SHA256", "instanceName": "", "somethingNew": true,
    });
    SubmitTask {
        queue: "exec".to_owned(),
        payload: Bytes::from(payload.to_string()),
        max_attempts: 1,
        ..SubmitTask::default()
    }
}

#[tokio::test]
async fn an_action_is_leased_run_and_committed() {
    let served = Served::start().await;
    let stage = Stage::new().await;
    let dir = tempfile::tempdir().unwrap();
    let url = format!("http://{}", served.address);
    let config = Config::new(url, "whole", ActionOptions::below(dir.path()));
    let (stop, executor) = (Stopper::new(), Arc::new(Host::new(Host::DEFAULT_ENV_ALLOW)));
    let agent = tokio::spawn(Agent::run(config, executor, stage.cas.clone(), stop.clone()));

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
    assert_eq!(result.execution_metadata.unwrap().worker, "whole");

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
    assert_eq!(failed["error"]["code"], "invalid_action");

    stop.stop();
    in_time(agent).await.unwrap().unwrap();
}
