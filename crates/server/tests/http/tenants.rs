//! A3: what one tenant takes leaves room for the others.

use serde_json::{Value, json};

use crate::support::{Served, Told, send};

async fn post_as(served: &Served, tenant: &str, path: &str, body: Value) -> Told {
    send(served.request("POST", path).header("lessor-tenant", tenant).json(&body)).await
}

/// One tenant that created ten thousand queues locked out all others.
#[tokio::test]
async fn a3_a_tenant_that_floods_the_queues_locks_out_no_other() {
    let served = Served::start().await;
    let task = |n: usize| json!({"queue": format!("q{n}"), "payload": 1});
    let mut refused = Value::Null;
    for batch in 0..10 {
        let tasks: Vec<Value> = (batch * 1_000..(batch + 1) * 1_000).map(task).collect();
        let told = post_as(&served, "greedy", "/v1/tasks/batch", json!({"tasks": tasks})).await;
        assert_eq!(told.status, 200, "{told:?}");
        refused = told.body["tasks"][999]["error"].clone();
    }
    assert_eq!(refused["code"], "too_many_queues", "{refused}");
    let detail = refused["detail"].as_str().unwrap();
    assert!(detail.contains("tenant greedy has 8750 queues, and 1250 of 10000 are free"), "{detail}");
    let told = post_as(&served, "greedy", "/v1/tasks", json!({"queue": "one more", "payload": 1})).await;
    told.is_problem(429, "too_many_queues");
    for (tenant, queue) in [("greedy", "q7"), ("modest", "q"), ("another", "q")] {
        let told = post_as(&served, tenant, "/v1/tasks", json!({"queue": queue, "payload": 1})).await;
        assert_eq!(told.status, 201, "{tenant}: {told:?}");
    }
    // Counts survive a restart.
    let served = served.restarted().await;
    let told = post_as(&served, "greedy", "/v1/tasks", json!({"queue": "one more", "payload": 1})).await;
    told.is_problem(429, "too_many_queues");
    let status = served.running.handle.status().await.unwrap();
    assert_eq!((status.tenants, status.queues), (3, 8_752));
}
