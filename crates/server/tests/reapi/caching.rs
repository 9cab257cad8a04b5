//! The entries of the action cache: which results become one, and when they are served.

use bazel_remote_apis::build::bazel::remote::execution::v2::action_cache_client::ActionCacheClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    ActionResult, OutputFile, UpdateActionResultRequest,
};
use tonic::Code;

use crate::support::{Served, ask, digest};

async fn run(
    served: &Served,
    request: bazel_remote_apis::build::bazel::remote::execution::v2::ExecuteRequest,
    result: ActionResult,
) {
    let waiting = served.execute(request).await.unwrap();
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    worker.complete(&task, result).await;
    waiting.response().await;
}

#[tokio::test]
async fn a_committed_result_is_served_without_a_task() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    run(&served, ask(&action), ActionResult { stdout_raw: b"first".to_vec(), ..Default::default() }).await;
    let again = served.execute(ask(&action)).await.unwrap().response().await;
    assert!(again.cached_result);
    assert_eq!(again.result.unwrap().stdout_raw, b"first");
    assert_eq!(served.cached(&action).await.unwrap().stdout_raw, b"first");
    assert_eq!(served.tasks().await, 1);
    served.stop().await;
}

/// R28, R35.
#[tokio::test]
async fn failed_and_uncached_results_are_never_entries() {
    let served = Served::start().await;
    let fails = served.action(&["false"]).await;
    run(&served, ask(&fails), ActionResult { exit_code: 1, ..Default::default() }).await;
    let uncached = served.action_with(&["date"], |action| action.do_not_cache = true).await;
    run(&served, ask(&uncached), ActionResult::default()).await;
    let served = served.restart().await;
    for action in [&fails, &uncached] {
        assert_eq!(served.cached(action).await.unwrap_err().code(), Code::NotFound);
    }
    served.stop().await;
}

#[tokio::test]
async fn r34_a_fresh_execution_replaces_the_entry() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    run(&served, ask(&action), ActionResult { stdout_raw: b"old".to_vec(), ..Default::default() }).await;
    let mut fresh = ask(&action);
    fresh.skip_cache_lookup = true;
    run(&served, fresh, ActionResult { stdout_raw: b"new".to_vec(), ..Default::default() }).await;
    assert_eq!(served.cached(&action).await.unwrap().stdout_raw, b"new");
    served.stop().await;
}

/// The ledger's effect writes the entry also when no client waits for the result.
#[tokio::test]
async fn the_entry_of_a_commit_that_nobody_waited_for_comes_from_the_ledger() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let mut waiting = served.execute(ask(&action)).await.unwrap();
    waiting.name().await;
    drop(waiting);
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    worker.complete(&task, ActionResult { stdout_raw: b"kept".to_vec(), ..Default::default() }).await;
    // A stop waits for the effects.
    let served = served.restart().await;
    assert_eq!(served.cached(&action).await.unwrap().stdout_raw, b"kept");
    served.stop().await;
}

#[tokio::test]
async fn r26_a_result_is_served_only_while_its_outputs_are_there() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let result = ActionResult {
        output_files: vec![OutputFile {
            path: "out".into(),
            digest: Some(digest(b"content")),
            ..Default::default()
        }],
        ..Default::default()
    };
    // Only a client can make such an entry: an execution is not committed without its outputs.
    let request = UpdateActionResultRequest {
        action_digest: Some(action.clone()),
        action_result: Some(result),
        ..Default::default()
    };
    ActionCacheClient::new(served.channel().await).update_action_result(request).await.unwrap();
    assert_eq!(served.cached(&action).await.unwrap_err().code(), Code::NotFound);
    served.upload(&[b"content"]).await;
    assert_eq!(served.cached(&action).await.unwrap().output_files[0].path, "out");
    served.stop().await;
}

/// Execute serves only what the coordinator committed; anybody's word is good enough for GetActionResult.
#[tokio::test]
async fn an_uploaded_result_is_never_served_by_execute() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let mut cache = ActionCacheClient::new(served.channel().await);
    let request = UpdateActionResultRequest {
        action_digest: Some(action.clone()),
        action_result: Some(ActionResult { stdout_raw: b"a lie".to_vec(), ..Default::default() }),
        ..Default::default()
    };
    cache.update_action_result(request).await.unwrap();
    assert_eq!(served.cached(&action).await.unwrap().stdout_raw, b"a lie");
    let mut waiting = served.execute(ask(&action)).await.unwrap();
    assert!(!waiting.next().await.done);
    assert_eq!(served.tasks().await, 1);
    served.stop().await;
}

#[tokio::test]
async fn a_task_that_somebody_put_into_the_queue_makes_no_entry() {
    let served = Served::start().await;
    let action = served.action(&["true"]).await;
    let payload = serde_json::json!({
        "operationName": "operations/x", "actionDigest": format!("{}/{}", action.hash, action.size_bytes),
        "digestFunction": "SHA256", "instanceName": ""
    });
    let body = serde_json::json!({"queue": "exec", "payload": payload});
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let sent = client.post(format!("http://{}/v1/tasks", served.address)).json(&body).send().await.unwrap();
    assert_eq!(sent.status(), 201);
    let mut worker = served.worker("w").await;
    let task = worker.lease().await;
    worker.complete(&task, ActionResult::default()).await;
    let served = served.restart().await;
    assert_eq!(served.cached(&action).await.unwrap_err().code(), Code::NotFound);
    served.stop().await;
}
