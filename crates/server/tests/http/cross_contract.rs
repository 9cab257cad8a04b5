//! A12: a lease that was taken through one contract is reported through another when its identity matches; the first
//! report stands, and its repeat is a repeat whichever way it comes.

use std::future::Future;

use serde_json::{Value, json};

use crate::support::callback::{HOLDER, Pushed, sign};
use crate::support::claim::{broken, done};
use crate::support::{Served, path};

/// One lease as each contract sees it.
struct Held {
    native: Value,
    job: Value,
    pushed: Pushed,
}

/// Pushes a task and spells its lease in the other contracts: the lease id is the lease token.
async fn held(served: &Served) -> Held {
    served.submit("q").await;
    let body = json!({"worker_id": HOLDER, "streams": ["q"], "max_wait_ms": 0});
    let job = served.worker_call("claim", body).await.body;
    let task = job["job_id"].as_str().unwrap().to_owned();
    let claims = json!({"tenantId": "default", "workspaceId": "default", "runId": "r", "taskId": task,
        "attempt": job["attempt"], "lease": job["fencing_token"], "holder": HOLDER, "iat": 0, "nbf": 0,
        "exp": u64::MAX});
    let token = sign("k1.1", &claims);
    let envelope = json!({"attempt": job["attempt"]});
    let native = json!({"leaseId": job["lease_token"], "taskId": job["job_id"]});
    Held { native, job, pushed: Pushed { envelope, task, token } }
}

/// A server that has signed a token, so that its first key is recorded.
async fn with_key() -> Served {
    let served = Served::start().await;
    served.push("other").await;
    served
}

const CONTRACTS: [&str; 3] = ["native", "claim", "callback"];

async fn completes(served: &Served, held: &Held, contract: &str, result: Value) -> u16 {
    let told = match contract {
        "native" => {
            served.report(&held.native, "complete", json!({"workerId": HOLDER, "result": result})).await
        }
        "claim" => served.worker_call("complete", done(&held.job, HOLDER, result)).await,
        _ => served.call(&held.pushed, "completed", held.pushed.succeeded(result)).await,
    };
    told.status
}

async fn fails(served: &Served, held: &Held, contract: &str) -> u16 {
    let told = match contract {
        "native" => {
            let body = json!({"workerId": HOLDER, "reason": "bad luck", "code": "E1", "retryable": false});
            served.report(&held.native, "fail", body).await
        }
        "claim" => served.worker_call("fail", broken(&held.job, HOLDER, false)).await,
        _ => {
            let mut body = held.pushed.failed("USER_CODE", Some(false));
            body["error"]["message"] = json!("bad luck");
            body["error"]["code"] = json!("E1");
            served.call(&held.pushed, "completed", body).await
        }
    };
    told.status
}

#[tokio::test]
async fn a12_a_report_is_the_same_report_through_every_contract() {
    let served = with_key().await;
    for first in CONTRACTS {
        for second in CONTRACTS {
            let one = held(&served).await;
            assert_eq!(completes(&served, &one, first, json!({"a": 1, "b": 2})).await, 200, "{first}");
            let position = served.position().await;
            let repeat = completes(&served, &one, second, json!({"b": 2.0, "a": 1})).await;
            assert_eq!(repeat, 200, "{first}, then {second}");
            assert_eq!(
                completes(&served, &one, second, json!(3)).await,
                409,
                "another story through {second}"
            );
            assert_eq!(fails(&served, &one, second).await, 409);

            let other = held(&served).await;
            assert_eq!(fails(&served, &other, first).await, 200, "{first}");
            assert_eq!(fails(&served, &other, second).await, 200, "{first}, then {second}");
            assert_eq!(served.task(&other.pushed.task).await["state"], "FAILED");
            assert_eq!(served.task(&one.pushed.task).await["result"], json!({"a": 1, "b": 2}));
            assert_eq!(served.position().await, position + 3, "a submit, a claim and a report");
        }
    }
}

#[tokio::test]
async fn a12_a_native_lease_is_kept_and_completed_through_claims() {
    let served = Served::start().await;
    let task = served.submit("q").await;
    let lease = served.lease("w", "q").await;
    let body = json!({"worker_id": "w", "job_id": task, "lease_token": lease["leaseId"]});
    assert_eq!(served.worker_call("heartbeat", body.clone()).await.body["ok"], true);
    let mut report = body;
    report["attempt_id"] = json!(format!("{task}:1"));
    report["result"] = json!(1);
    let told = served.worker_call("complete", report.clone()).await;
    assert_eq!((told.status, told.body), (200, json!({"ok": true, "ack": true})), "without a message");
    let again = served.report(&lease, "complete", json!({"workerId": "w", "result": 1})).await;
    assert_eq!((again.status, &again.body["verdict"]), (200, &json!("COMMITTED")));
}

#[tokio::test]
async fn a12_a_claimed_job_is_beaten_for_and_released_through_the_native_contract() {
    let served = Served::start().await;
    let job = served.claimed("w", "q").await;
    let lease = json!({"leaseId": job["lease_token"]});
    let beat = served.post(&path(&lease, "heartbeat"), json!({"workerId": "w"})).await;
    assert_eq!(beat.status, 200, "{beat:?}");
    let released = served.post(&path(&lease, "release"), json!({"workerId": "w"})).await;
    assert_eq!((released.status, &released.body["state"]), (200, &json!("WAITING")));
    let late = served.worker_call("complete", done(&job, "w", json!(1))).await;
    late.is_unclaimed(409, "lease_lost", true);
}

#[tokio::test]
async fn a12_another_identity_is_refused_through_every_contract() {
    let served = with_key().await;
    let held = held(&served).await;
    let position = served.position().await;
    let native = served.report(&held.native, "complete", json!({"workerId": "w", "result": 1})).await;
    native.is_problem(403, "bad_lease_id");
    served.worker_call("complete", done(&held.job, "w", json!(1))).await.is_unclaimed(
        403,
        "bad_lease_id",
        false,
    );
    let token = held.pushed.with_claim("holder", json!("w"));
    let body = held.pushed.succeeded(json!(1));
    let told = served.call_with(&held.pushed.task, &token, "completed", body).await;
    told.is_refused(401, "invalid_token");
    // A lease id is no task token, and a task token is no lease id.
    let swapped = held.job["lease_token"].as_str().unwrap();
    let told =
        served.call_with(&held.pushed.task, swapped, "completed", held.pushed.succeeded(json!(1))).await;
    told.is_refused(401, "invalid_token");
    let mut swapped = done(&held.job, HOLDER, json!(1));
    swapped["lease_token"] = json!(held.pushed.token);
    served.worker_call("complete", swapped).await.is_unclaimed(403, "bad_lease_id", false);
    assert_eq!(served.position().await, position);
}

/// However many tell different stories of one attempt at the same time, one is accepted.
#[tokio::test]
async fn a12_of_many_stories_at_once_one_is_accepted() {
    let served = with_key().await;
    let held = held(&served).await;
    let stories = (0..30).map(|n| completes(&served, &held, CONTRACTS[n % 3], json!(n)));
    let mut told = Vec::new();
    let mut all: Vec<_> = stories.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        all.retain_mut(|story| match story.as_mut().poll(context) {
            std::task::Poll::Ready(status) => {
                told.push(status);
                false
            }
            std::task::Poll::Pending => true,
        });
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    told.sort_unstable();
    assert_eq!((told[0], &told[1..]), (200, &[409; 29][..]));
}
