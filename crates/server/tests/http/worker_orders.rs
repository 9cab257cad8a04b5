//! The orders of the operator for workers over HTTP: drain, stop and resume.

use serde_json::{Value, json};

use crate::support::{Served, send};

async fn known(served: &Served, worker: &str) -> Value {
    let list = served.get("/v1/workers").await.body;
    let mut workers = list["workers"].as_array().unwrap().iter();
    workers.find(|known| known["workerId"] == worker).cloned().unwrap_or_default()
}

fn poll(worker: &str, wait_ms: u64) -> Value {
    json!({"workerId": worker, "queues": ["q"], "waitMs": wait_ms})
}

/// Waits until as many polls wait for tasks.
async fn polls(served: &Served, wanted: usize) {
    while served.running.handle.status().await.unwrap().polls != wanted {
        tokio::task::yield_now().await;
    }
}

/// A poll of a drained worker keeps waiting and does not keep others from the task, which were asked after it.
#[tokio::test]
async fn c34_a_drained_worker_is_granted_nothing_until_it_is_resumed() {
    let served = Served::start().await;
    served.submit("q").await;
    let held = served.lease("w", "q").await;
    let drained = served.post("/v1/workers/w/drain", json!({})).await;
    assert_eq!((drained.status, &drained.body["drained"]), (200, &json!(true)), "{drained:?}");
    assert_eq!((&drained.body["activeLeases"], &drained.body["stopping"]), (&json!(1), &json!(false)));
    assert_eq!(known(&served, "w").await["drained"], true);

    let first = poll("w", 60_000);
    let parked = async {
        polls(&served, 1).await;
        let other = served.post("/v1/leases", poll("other", 60_000));
        let submit = async {
            polls(&served, 2).await;
            served.submit("q").await
        };
        let (other, task) = tokio::join!(other, submit);
        assert_eq!(other.body["leases"][0]["taskId"], task.as_str(), "{other:?}");
        let next = served.submit("q").await;
        // Everything that was asked before is decided, so a worker that were not drained would have it.
        assert_eq!(served.task(&next).await["state"], "WAITING");
        let resumed = served.post("/v1/workers/w/resume", json!({})).await;
        assert_eq!((resumed.status, &resumed.body["drained"]), (200, &json!(false)), "{resumed:?}");
        next
    };
    let (leased, next) = tokio::join!(served.post("/v1/leases", first), parked);
    assert_eq!(leased.body["leases"][0]["taskId"], next.as_str(), "the poll that waited gets it: {leased:?}");
    let done = served.report(&held, "complete", json!({"workerId": "w"})).await;
    assert_eq!(done.body["verdict"], "COMMITTED", "what it held when it was drained is accepted: {done:?}");
}

#[tokio::test]
async fn c34_orders_are_repeated_without_harm_and_unknown_workers_are_told_apart() {
    let served = Served::start().await;
    for order in ["drain", "stop", "resume"] {
        let told = served.post(&format!("/v1/workers/nobody/{order}"), json!({})).await;
        told.is_problem(404, "unknown_worker");
        assert!(told.body["detail"].as_str().unwrap().contains("nobody"), "{told:?}");
    }
    served.post("/v1/leases", poll("w", 0)).await;
    for order in ["resume", "drain", "drain", "stop", "stop", "drain", "resume", "resume"] {
        let told = send(served.request("POST", &format!("/v1/workers/w/{order}"))).await;
        assert_eq!(
            (told.status, &told.body["drained"]),
            (200, &json!(order != "resume")),
            "{order}: {told:?}"
        );
    }
    served.post("/v1/workers/w/drain", json!({"tenant": "other"})).await.is_problem(404, "unknown_worker");
    served.post("/v1/workers/w/drain", json!({"for": "ever"})).await.is_problem(400, "invalid_field");
}

#[tokio::test]
async fn c34_a_tenant_orders_no_worker_and_the_operator_those_of_every_tenant() {
    let served = Served::start().await;
    let of = |header: &str| {
        served.request("POST", "/v1/leases").header(header.to_owned(), "acme").json(&poll("w", 0))
    };
    assert_eq!(send(of("lessor-tenant")).await.status, 200);
    for order in ["drain", "stop", "resume"] {
        for header in ["lessor-tenant", "lessor-workspace"] {
            let order = served.request("POST", &format!("/v1/workers/w/{order}")).header(header, "acme");
            send(order).await.is_problem(403, "operator_only");
        }
    }
    let told = served.post("/v1/workers/w/drain", json!({"tenant": "acme"})).await;
    assert_eq!((told.status, &told.body["drained"]), (200, &json!(true)), "{told:?}");
    assert_eq!(known(&served, "w").await, Value::Null, "the worker of the default tenant is another one");
}

#[tokio::test]
async fn c34_a_drain_is_waited_for_until_the_last_lease_ends() {
    let served = Served::start().await;
    served.submit("q").await;
    served.submit("q").await;
    let (one, two) = (served.lease("w", "q").await, served.lease("w", "q").await);
    let wait = served.post("/v1/workers/w/drain", json!({"waitMs": 60_000}));
    let end = async {
        while known(&served, "w").await["drained"] != true {}
        served.report(&one, "complete", json!({"workerId": "w"})).await;
        served.report(&two, "release", json!({"workerId": "w"})).await
    };
    let (drained, released) = tokio::join!(wait, end);
    assert_eq!(released.status, 200, "{released:?}");
    assert_eq!((drained.status, &drained.body["activeLeases"]), (200, &json!(0)), "{drained:?}");
}

/// Drains are soft state, like the registry of workers.
#[tokio::test]
async fn c34_a_restart_of_the_coordinator_ends_a_drain() {
    let served = Served::start().await;
    served.post("/v1/leases", poll("w", 0)).await;
    assert_eq!(served.post("/v1/workers/w/drain", json!({})).await.status, 200);
    let served = served.restarted().await;
    served.submit("q").await;
    served.lease("w", "q").await;
    assert_eq!(known(&served, "w").await["drained"], false);
}
