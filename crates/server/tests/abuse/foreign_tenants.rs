//! Tenants belong to keys. What another tenant has cannot be told from what never existed: the answers have the same bytes.

use bazel_remote_apis::build::bazel::remote::execution::v2::WaitExecutionRequest;
use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::google::longrunning::operations_client::OperationsClient;
use bazel_remote_apis::google::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
    WaitOperationRequest,
};
use serde_json::{Value, json};
use tonic::Status;

use crate::guarded::Guarded;
use crate::keyed::{channel, execute, with_key};
use crate::support::{Served, send};

/// A status and the bytes of a body.
pub(crate) async fn bytes(request: reqwest::RequestBuilder) -> (u16, String) {
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

/// A server with two tenants, and a key of each.
pub(crate) struct Tenants {
    pub guarded: Guarded,
    pub ada: String,
    pub eve: String,
}

pub(crate) async fn tenants() -> Tenants {
    let guarded = Guarded::start().await;
    let roles = ["reader", "submitter", "worker", "cache-writer", "operator"];
    let (ada, eve) = (guarded.key("ada", "ada", &roles).await, guarded.key("eve", "eve", &roles).await);
    Tenants { guarded, ada, eve }
}

#[tokio::test]
async fn the_tenant_comes_from_the_key_and_the_header_chooses_among_its_tenants() {
    let Tenants { guarded, ada, .. } = tenants().await;
    let task = json!({"queue": "q", "payload": 1});
    let id = guarded.post(&ada, "/v1/tasks", task.clone()).await.text("taskId");
    let path = format!("/v1/tasks/{id}");
    let as_tenant =
        |key: &str, tenant: &str| guarded.request(key, "GET", &path).header("lessor-tenant", tenant);
    assert_eq!(send(as_tenant(&ada, "ada")).await.status, 200);
    assert_eq!(send(as_tenant(&guarded.admin, "ada")).await.status, 200, "an admin has all tenants");
    guarded.get(&guarded.admin, &path).await.is_problem(404, "unknown_task");
    let told = send(as_tenant(&ada, "eve")).await;
    told.is_problem(403, "forbidden");
    assert!(told.text("detail").contains("not for the tenant eve"), "{told:?}");
    let twice = as_tenant(&ada, "ada").header("lessor-tenant", "eve");
    send(twice).await.is_problem(400, "invalid_scope");
    let (both, _) =
        guarded.create(json!({"name": "both", "tenants": ["eve", "ada"], "roles": ["reader"]})).await;
    assert_eq!(send(as_tenant(&both, "ada")).await.status, 200);
    guarded.get(&both, &path).await.is_problem(404, "unknown_task");
}

#[tokio::test]
async fn a_guessed_task_looks_like_one_that_never_was() {
    let Tenants { guarded, ada, eve } = tenants().await;
    let id = guarded.post(&ada, "/v1/tasks", json!({"queue": "q", "payload": 1})).await.text("taskId");
    // Made at the same time, and nobody's.
    let never = format!(
        "{}{}",
        &id[..24],
        if id.ends_with("000000000001") { "000000000002" } else { "000000000001" }
    );
    for (method, path, body) in [
        ("GET", "", None),
        ("GET", "/history", None),
        ("POST", "/cancel", Some(json!({}))),
        ("POST", "/redrive", Some(json!({}))),
    ] {
        let ask = |task: &str| {
            let request = guarded.request(&eve, method, &format!("/v1/tasks/{task}{path}"));
            bytes(match &body {
                Some(body) => request.json(body),
                None => request,
            })
        };
        let (foreign, absent) = (ask(&id).await, ask(&never).await);
        assert_eq!(
            (foreign.0, foreign.1.replace(&id, "ID")),
            (absent.0, absent.1.replace(&never, "ID")),
            "{path}"
        );
        assert_eq!(foreign.0, 404, "{foreign:?}");
    }
    let mine = guarded.get(&eve, "/v1/tasks").await.body;
    assert_eq!(mine["tasks"], json!([]));
}

#[tokio::test]
async fn a_stolen_lease_id_and_a_page_token_look_like_made_up_ones() {
    let Tenants { guarded, ada, eve } = tenants().await;
    for n in 0..3 {
        let told = guarded.post(&ada, "/v1/tasks", json!({"queue": "q", "payload": n})).await;
        assert_eq!(told.status, 201);
    }
    let poll = json!({"workerId": "w", "queues": ["q"], "waitMs": 0});
    let leased = guarded.post(&ada, "/v1/leases", poll).await;
    let lease = leased.body["leases"][0]["leaseId"].as_str().unwrap().to_owned();
    let made_up = format!("A{}", &lease[1..lease.len() - 4]) + "AAAA";
    for (call, body) in [
        ("heartbeat", json!({"workerId": "w"})),
        ("complete", json!({"workerId": "w", "result": 1})),
        ("fail", json!({"workerId": "w", "reason": "x"})),
        ("release", json!({"workerId": "w"})),
    ] {
        let ask =
            |id: &str| bytes(guarded.request(&eve, "POST", &format!("/v1/leases/{id}/{call}")).json(&body));
        let (stolen, absent) = (ask(&lease).await, ask(&made_up).await);
        assert_eq!(stolen, absent, "{call}");
        assert_eq!(stolen.0, 403, "{call}");
    }
    let page = guarded.get(&ada, "/v1/tasks?limit=1").await.text("nextPageToken");
    let ask =
        |token: &str| bytes(guarded.request(&eve, "GET", &format!("/v1/tasks?limit=1&pageToken={token}")));
    let (stolen, absent) = (ask(&page).await, ask(&"A".repeat(page.len())).await);
    assert_eq!(stolen, absent);
    assert_eq!(stolen.0, 400);
    // The lease is still its owner's.
    let done = guarded.request(&ada, "POST", &format!("/v1/leases/{lease}/complete"));
    assert_eq!(send(done.json(&json!({"workerId": "w", "result": 1}))).await.status, 200);
}

#[tokio::test]
async fn the_workers_and_queues_of_another_tenant_look_like_none() {
    let Tenants { guarded, ada, eve } = tenants().await;
    let poll = json!({"workerId": "w", "queues": ["secret"], "waitMs": 0});
    assert_eq!(guarded.post(&ada, "/v1/tasks", json!({"queue": "secret", "payload": 1})).await.status, 201);
    assert_eq!(guarded.post(&ada, "/v1/leases", poll).await.status, 200);
    assert_eq!(guarded.get(&eve, "/v1/workers").await.body, json!({"workers": []}));
    assert_eq!(guarded.get(&eve, "/v1/queues").await.body, json!({"queues": []}));
    let ask = |path: &str| bytes(guarded.request(&eve, "GET", path));
    let (foreign, absent) = (ask("/v1/queues/secret").await, ask("/v1/queues/nobody").await);
    assert_eq!(
        (foreign.0, foreign.1.replace("secret", "NAME")),
        (absent.0, absent.1.replace("nobody", "NAME"))
    );
    for order in ["drain", "stop", "resume"] {
        let give = |worker: &str, body: Value| {
            bytes(guarded.request(&eve, "POST", &format!("/v1/workers/{worker}/{order}")).json(&body))
        };
        let (foreign, absent) = (give("w", json!({})).await, give("v", json!({})).await);
        assert_eq!(
            (foreign.0, foreign.1.replace("w of", "ID of")),
            (absent.0, absent.1.replace("v of", "ID of"))
        );
        assert_eq!(foreign.0, 404, "{foreign:?}");
        let named = give("w", json!({"tenant": "ada"})).await;
        assert!(named.0 == 403 && named.1.contains("not for the tenant ada"), "{named:?}");
    }
    let own = guarded.request(&ada, "POST", "/v1/workers/w/drain").json(&json!({}));
    assert_eq!(send(own).await.status, 200, "without a tenant, an order is for the key's own");
}

/// The status of a call about an operation; none when the call is answered.
async fn about_operation(guarded: &Guarded, key: &str, call: &str, name: &str) -> Option<Status> {
    let (channel, name) = (channel(guarded).await, name.to_owned());
    let mut operations = OperationsClient::new(channel.clone());
    match call {
        "get" => operations.get_operation(with_key(key, GetOperationRequest { name })).await.err(),
        "wait" => {
            let request = WaitOperationRequest { name, timeout: None };
            operations.wait_operation(with_key(key, request)).await.err()
        }
        "cancel" => operations.cancel_operation(with_key(key, CancelOperationRequest { name })).await.err(),
        "delete" => operations.delete_operation(with_key(key, DeleteOperationRequest { name })).await.err(),
        _ => {
            let request = with_key(key, WaitExecutionRequest { name });
            ExecutionClient::new(channel).wait_execution(request).await.err()
        }
    }
}

#[tokio::test]
async fn a_guessed_operation_looks_like_one_that_never_was() {
    let Tenants { guarded, ada, eve } = tenants().await;
    let (name, _stream) = execute(&guarded, &ada).await;
    let found = about_operation(&guarded, &ada, "get", &name).await;
    assert!(found.is_none(), "its owner finds it: {found:?}");
    let (_, secret) = name.rsplit_once('-').unwrap();
    let never = format!("operations/01900000-0000-7000-8000-000000000001-{secret}");
    for call in ["get", "wait", "cancel", "delete", "wait execution"] {
        let mut answers = Vec::new();
        for name in [&name, &never] {
            let status = about_operation(&guarded, &eve, call, name).await.expect(call);
            answers.push((status.code(), status.message().replace(name, "NAME"), status.details().to_vec()));
        }
        assert_eq!(answers[0], answers[1], "{call}");
        assert_eq!(answers[0].0, tonic::Code::NotFound, "{call}");
    }
    let mut operations = OperationsClient::new(channel(&guarded).await);
    let mine = operations.get_operation(with_key(&ada, GetOperationRequest { name: name.clone() })).await;
    assert!(!mine.unwrap().into_inner().done, "it goes on");
    let listed = operations.list_operations(with_key(&eve, ListOperationsRequest::default())).await;
    assert_eq!(listed.unwrap().into_inner().operations, []);
    let listed = operations.list_operations(with_key(&ada, ListOperationsRequest::default())).await;
    assert_eq!(listed.unwrap().into_inner().operations.len(), 1);
}

/// Without authentication a tenant is what the header says, as before.
#[tokio::test]
async fn without_authentication_nothing_changes() {
    let served = Served::start().await;
    let request = served.request("POST", "/v1/tasks").header("lessor-tenant", "any").bearer_auth("nonsense");
    let told = send(request.json(&json!({"queue": "q", "payload": 1}))).await;
    assert_eq!(told.status, 201, "{told:?}");
}
