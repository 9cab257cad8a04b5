//! Push dispatch as a target and its worker see it.

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use server::PushOptions;
use sha2::Sha256;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::target::{Arrived, Target};
use crate::support::{Served, send};

const SECRET: &str = "a secret of the target";

/// C20: the lease is the target's, and the worker that begins names itself.
#[tokio::test]
async fn s1_53_s1_54_a_pushed_task_has_every_field_and_its_worker_completes_it() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    let push = json!({"concurrency": 3, "headers": {"X-Key": "v 1"}, "secret": SECRET});
    served.push_to("q", &target, json!({"push": push, "cancelGracePeriodMs": 7_000})).await;
    let task = served
        .post(
            "/v1/tasks",
            json!({"queue": "q", "payload": {"n": [1]}, "runId": "run_9", "assetId": "mat_1", "taskKey": "k",
                "resources": {"cpu": 2}, "deadline": "2999-01-01T00:00:00Z"}),
        )
        .await
        .text("taskId");

    let arrived = target.next().await;
    assert_eq!(arrived.header("content-type"), "application/json");
    assert_eq!(arrived.header("user-agent"), concat!("lessor/", env!("CARGO_PKG_VERSION")));
    assert_eq!(arrived.header("x-key"), "v 1");
    assert_eq!(arrived.header("lessor-dispatch-id"), arrived.dispatch_id());
    assert_eq!(arrived.dispatch_id().len(), 28);
    assert!(is_signed(&arrived), "{:?}", arrived.headers);

    let shown = served.task(&task).await;
    assert_eq!((&shown["state"], &shown["lease"]["workerId"]), (&json!("LEASED"), &json!("push:q")));
    let pushed = arrived.accept();
    let envelope = &pushed.envelope;
    let expected = json!({
        "taskId": task, "runId": "run_9", "assetId": "mat_1", "taskKey": "k", "queue": "q", "tenantId": "default",
        "workspaceId": "default", "attempt": 1, "resources": {"cpu": 2}, "enqueuedAt": shown["createdAt"],
        "deadline": "2999-01-01T00:00:00Z", "callbackBaseUrl": format!("http://{}", served.address),
        "taskToken": envelope["taskToken"], "tokenExpiresAt": envelope["tokenExpiresAt"],
        "heartbeatIntervalMs": 30_000, "heartbeatTimeoutMs": 90_000, "cancelGracePeriodMs": 7_000,
        "payload": {"n": [1]}, "fencingToken": envelope["fencingToken"], "dispatchId": envelope["dispatchId"],
    });
    assert_eq!(*envelope, expected);
    assert!(envelope["taskToken"].is_string() && envelope["tokenExpiresAt"].is_string());

    // The worker knows nothing but its envelope.
    let call = |what: &str, body: Value| {
        let base = envelope["callbackBaseUrl"].as_str().unwrap();
        let url = format!("{base}/v1/tasks/{task}/{what}");
        send(served.client.post(url).bearer_auth(envelope["taskToken"].as_str().unwrap()).json(&body))
    };
    assert_eq!(call("started", pushed.started()).await.status, 200);
    assert_eq!(served.task(&task).await["lease"]["startedBy"], "worker-1");
    assert_eq!(call("heartbeat", pushed.beat()).await.status, 200);
    call("completed", pushed.succeeded(json!({"ok": 1}))).await.is_final("SUCCEEDED");
    let ended = served.ended(&task).await;
    assert_eq!((&ended["state"], &ended["result"]), (&json!("COMPLETED"), &json!({"ok": 1})));
    served.stopped().await;
}

fn is_signed(arrived: &Arrived) -> bool {
    let signature = arrived.header("lessor-signature");
    let (time, hex) = signature.strip_prefix("t=").unwrap().split_once(",v1=").unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(format!("{time}.").as_bytes());
    mac.update(&arrived.body);
    let expected = data_encoding::HEXLOWER.encode(&mac.finalize().into_bytes());
    hex == expected && time.parse::<u64>().is_ok_and(|time| time > 1_700_000_000)
}

#[tokio::test]
async fn s1_4_targets_call_back_where_the_operator_says() {
    let url = Some("https://lessor.example/base/".to_owned());
    let served =
        Served::start_pushing_with(PushOptions { callback_url: url, ..PushOptions::default() }).await;
    let mut target = Target::start().await;
    served.submit("q").await;
    served.push_to("q", &target, json!({})).await;
    let arrived = target.next().await;
    assert_eq!(arrived.pushed.envelope["callbackBaseUrl"], "https://lessor.example/base");
    assert!(!arrived.headers.contains_key("lessor-signature"), "there is no secret");
    served.stopped().await;
}

#[tokio::test]
async fn s1_33_s1_34_a_queue_with_a_push_target_has_its_own_defaults() {
    let (served, target) = (Served::start_pushing().await, Target::start().await);
    for (queue, lease_ms, interval_ms) in [("q", 90_000, 30_000), ("exec", 300_000, 30_000)] {
        served.push_to(queue, &target, json!({})).await;
        let config = &served.get(&format!("/v1/queues/{queue}")).await.body["config"];
        assert_eq!(config["heartbeatTimeoutMs"], lease_ms, "{queue}");
        assert_eq!(config["heartbeatIntervalMs"], interval_ms, "{queue}");
    }
    served.stopped().await;
}

#[tokio::test]
async fn a_dispatch_keeps_its_id_over_a_restart_and_another_attempt_has_another() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    let backoff = json!({"initialMs": 0, "maxMs": 0, "jitter": 0});
    served.push_to("q", &target, json!({"backoff": backoff})).await;
    let task = served.submit("q").await;
    let first = target.next().await;
    let id = first.dispatch_id().to_owned();
    let old = first.accept();

    let served = served.restarted().await;
    let again = target.next().await;
    assert_eq!((again.dispatch_id(), again.pushed.attempt()), (id.as_str(), 1));
    assert_eq!(again.pushed.envelope["fencingToken"], old.envelope["fencingToken"]);
    let again = again.accept();
    // Both tokens are of the same attempt.
    assert_eq!(served.call(&old, "started", old.started()).await.status, 200);
    served.call(&again, "completed", again.failed("INFRASTRUCTURE", None)).await.is_final("RETRY_WAIT");

    let second = target.next().await;
    assert_eq!((second.pushed.task.as_str(), second.pushed.attempt()), (task.as_str(), 2));
    assert_ne!(second.dispatch_id(), id);
    let second = second.accept();
    served.work_off(&second).await;
    assert_eq!(served.ended(&task).await["state"], "COMPLETED");
    served.stopped().await;
}

#[tokio::test]
async fn a_target_never_has_more_tasks_than_it_may() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    served.push_to("q", &target, json!({"push": {"concurrency": 2}})).await;
    for _ in 0..6 {
        served.submit("q").await;
    }
    let mut open = vec![target.next().await.accept(), target.next().await.accept()];
    for sent in 2..6 {
        let counts = &served.get("/v1/queues/q").await.body["counts"];
        assert_eq!((&counts["leased"], &counts["waiting"]), (&json!(2), &json!(6 - sent)));
        assert!(target.is_idle());
        served.work_off(&open.remove(0)).await;
        open.push(target.next().await.accept());
    }
    for pushed in open {
        served.work_off(&pushed).await;
    }
    served.stopped().await;
}

#[tokio::test]
async fn what_has_begun_is_not_sent_again_after_a_restart_and_keeps_its_place() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    served.push_to("q", &target, json!({"push": {"concurrency": 1}})).await;
    let (one, other) = (served.submit("q").await, served.submit("q").await);
    let pushed = target.next().await.accept();
    assert_eq!(served.call(&pushed, "started", pushed.started()).await.status, 200);

    let served = served.restarted().await;
    // A queue of another target shows that the dispatcher is at work again.
    let mut witness = Target::start().await;
    served.push_to("witness", &witness, json!({})).await;
    served.submit("witness").await;
    witness.next().await;
    assert!(target.is_idle());
    assert_eq!(served.task(&other).await["state"], "WAITING");
    served.call(&pushed, "completed", pushed.succeeded(json!(1))).await.is_final("SUCCEEDED");
    assert_eq!(served.ended(&one).await["state"], "COMPLETED");
    let next = target.next().await.accept();
    assert_eq!(next.task, other);
    served.stopped().await;
}

#[tokio::test]
async fn another_target_takes_over_what_has_not_begun() {
    let (served, mut old, mut new) =
        (Served::start_pushing().await, Target::start().await, Target::start().await);
    served.push_to("q", &old, json!({})).await;
    served.submit("q").await;
    let first = old.next().await;
    let id = first.dispatch_id().to_owned();
    served.push_to("q", &new, json!({})).await;
    let again = new.next().await;
    assert_eq!((again.dispatch_id(), again.pushed.attempt()), (id.as_str(), 1));
    let again = again.accept();
    served.work_off(&again).await;
    served.stopped().await;
}

#[tokio::test]
async fn without_its_target_a_queue_is_there_for_workers() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    served.push_to("q", &target, json!({})).await;
    let (one, other) = (served.submit("q").await, served.submit("q").await);
    let begun = target.next().await.accept();
    let waits = target.next().await.accept();
    assert_eq!(served.call(&begun, "started", begun.started()).await.status, 200);
    assert_eq!(served.put("/v1/queues/q", json!({})).await.status, 200);

    let body = json!({"workerId": "w", "queues": ["q"], "waitMs": 60_000});
    let lease = served.post("/v1/leases", body).await.body["leases"][0].clone();
    assert_eq!(lease["taskId"], waits.task);
    assert!([one, other].contains(&begun.task));
    served.call(&begun, "completed", begun.succeeded(json!(1))).await.is_final("SUCCEEDED");
    assert_eq!(served.kinds(&waits.task).await[2], "LeaseReleased");
    served.stopped().await;
}

/// The wake-up is not lost with the one who asked for it.
#[tokio::test]
async fn a_client_that_vanishes_while_it_configures_still_starts_the_pushing() {
    let (served, mut target) = (Served::start_pushing().await, Target::start().await);
    served.submit("q").await;
    let body = json!({"push": {"url": target.url()}}).to_string();
    let request = format!(
        "PUT /v1/queues/q HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    drop(stream);
    target.next().await;
    served.stopped().await;
}
