//! Tasks that are commands, on plain queues, from the command line to their result.

use serde_json::{Value, json};

use crate::support::Server;
use crate::support_worker::{Worker, server, submit, task, until_state};

fn serving() -> (Server, tempfile::TempDir, Worker) {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let worker = Worker::start(dir.path(), &["--server-url", &server.url(), "--queue", "jobs"]);
    (server, dir, worker)
}

fn failed(server: &Server, payload: &Value, max_attempts: u32) -> Value {
    let backoff = json!({"initialMs": 1, "maxMs": 1});
    let body = json!({"queue": "jobs", "payload": payload, "maxAttempts": max_attempts, "backoff": backoff});
    until_state(server, &submit(server, body), "FAILED")
}

#[test]
fn a_command_is_submitted_and_its_result_is_its_exit_code_and_output() {
    let (server, _dir, worker) = serving();
    let payload = json!({
        "command": ["sh", "-c", "echo $GREETING $LESSOR_ATTEMPT $LESSOR_TASK_ID; echo err >&2; pwd; ls"],
        "env": {"GREETING": "hello"},
    });
    let ran = server.run(&["submit", "jobs", &payload.to_string(), "--wait", "--json"]).ok();
    let id = ran.json()["taskId"].as_str().unwrap().to_owned();
    let task = server.run(&["task", "get", &id, "--json"]).ok().json();
    let stdout = task["result"]["stdout"].as_str().unwrap();
    assert!(stdout.starts_with(&format!("hello 1 {id}\n")), "{task}");
    assert!(stdout.ends_with("/root\n"), "its directory is its own and empty: {task}");
    assert_eq!((&task["result"]["exitCode"], &task["result"]["stderr"]), (&json!(0), &json!("err\n")));
    assert_eq!(task["result"].as_object().unwrap().len(), 3, "{task}");
    assert_eq!(worker.terminate(), Some(0));
}

#[test]
fn what_is_no_text_or_large_is_told_as_such() {
    let (server, _dir, _worker) = serving();
    let script = r"printf 'a\377'; head -c 70000 /dev/zero | tr '\0' x >&2";
    let payload = json!({"command": ["sh", "-c", script]});
    let id = submit(&server, json!({"queue": "jobs", "payload": payload}));
    let result = until_state(&server, &id, "COMPLETED")["result"].clone();
    assert_eq!(result["stdoutBase64"], "Yf8=", "{result}");
    let large = blobs::Digest::of(blobs::DigestFunction::Sha256, &[b'x'; 70_000]);
    assert_eq!(result["stderrDigest"], large.to_string(), "{result}");
    let url = format!("{}/cas/{}", server.url(), large.hash);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let content = runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        client.get(url).send().await.unwrap().error_for_status().unwrap().bytes().await.unwrap()
    });
    assert_eq!(content.len(), 70_000);
}

#[test]
fn s3_55_a_command_that_fails_is_tried_again_as_the_policy_says() {
    let (server, _dir, _worker) = serving();
    let payload = json!({"command": ["sh", "-c", "echo some; echo what went wrong >&2; exit 3"]});
    let task = failed(&server, &payload, 2);
    let error = &task["error"];
    assert_eq!((&task["attempt"], &error["code"]), (&json!(2), &json!("exit_code")), "{task}");
    assert_eq!(error["category"], "USER_CODE");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("exit code 3") && message.ends_with("what went wrong"), "{message}");
    let stdout = blobs::Digest::of(blobs::DigestFunction::Sha256, b"some\n");
    assert!(message.contains(&format!("standard output {stdout}")), "{message}");

    let missing = failed(&server, &json!({"command": ["no-such-program"]}), 1);
    assert!(missing["error"]["message"].as_str().unwrap().contains("exit code 127"), "{missing}");
}

#[test]
fn a_command_that_takes_too_long_has_timed_out() {
    let (server, _dir, _worker) = serving();
    let task = failed(&server, &json!({"command": ["sleep", "600"], "timeoutMs": 50}), 2);
    assert_eq!((&task["attempt"], &task["error"]["code"]), (&json!(2), &json!("timeout")), "{task}");
    assert_eq!(task["error"]["category"], "TIMEOUT");
}

#[test]
fn a_payload_that_is_no_command_fails_for_good() {
    let (server, _dir, _worker) = serving();
    for (payload, expected) in [
        (json!({"command": ["true"], "timeout": 5}), "unknown field `timeout`"),
        (json!({"command": []}), "names no program"),
        (json!({"something": "else"}), "no `actionDigest` and no `command`"),
        (json!(17), "neither an action nor a command"),
    ] {
        let task = failed(&server, &payload, 5);
        let error = &task["error"];
        assert_eq!((&task["attempt"], &error["code"]), (&json!(1), &json!("invalid_payload")), "{task}");
        assert_eq!(error["category"], "CONFIGURATION");
        assert!(error["message"].as_str().unwrap().contains(expected), "{task}");
    }
}

#[test]
fn a_task_that_asks_for_more_than_the_worker_has_is_told_so() {
    let (server, _dir, _worker) = serving();
    let payload = json!({"command": ["true"]});
    let resources = json!({"cpuCores": 100_000});
    let body = json!({"queue": "jobs", "payload": payload, "resources": resources, "maxAttempts": 1});
    let id = submit(&server, body);
    let failed = until_state(&server, &id, "FAILED");
    assert_eq!(failed["error"]["code"], "not_enough_resources", "{failed}");
    let fits = json!({"queue": "jobs", "payload": payload, "resources": {"cpuCores": 1, "gpu": "none"}});
    until_state(&server, &submit(&server, fits), "COMPLETED");
    assert_eq!(task(&server, &id)["attempt"], 1);
}
