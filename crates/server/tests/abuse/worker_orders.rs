//! Orders for workers where callers have keys: the tenant comes from the key, the header and the body together.

use serde_json::{Value, json};

use crate::guarded::Guarded;
use crate::support::send;

/// Without a tenant in its body, an order went to the first tenant of the key, whatever the header said.
#[tokio::test]
async fn an_order_for_a_worker_is_for_the_tenant_of_the_call() {
    let guarded = Guarded::start().await;
    let roles = ["operator", "reader", "worker"];
    let key = json!({"name": "both", "tenants": ["ada", "eve"], "roles": roles});
    let (key, _) = guarded.create(key).await;
    let of = |tenant: &str, method: &str, path: &str| {
        guarded.request(&key, method, path).header("lessor-tenant", tenant)
    };
    for tenant in ["ada", "eve"] {
        let poll = json!({"workerId": "w", "queues": ["q"], "waitMs": 0});
        assert_eq!(send(of(tenant, "POST", "/v1/leases").json(&poll)).await.status, 200);
    }
    let drained = async || {
        let [ada, eve] = ["ada", "eve"].map(|tenant| send(of(tenant, "GET", "/v1/workers")));
        [ada.await, eve.await].map(|told| told.body["workers"][0]["drained"] == json!(true))
    };
    let order = async |order: &str, header: Option<&str>, body: Value| {
        let mut request = guarded.request(&key, "POST", &format!("/v1/workers/w/{order}"));
        if let Some(tenant) = header {
            request = request.header("lessor-tenant", tenant);
        }
        send(request.json(&body)).await
    };
    assert_eq!(order("drain", Some("eve"), json!({})).await.status, 200);
    assert_eq!(drained().await, [false, true], "the header chooses");
    assert_eq!(order("resume", None, json!({"tenant": "eve"})).await.status, 200);
    assert_eq!(drained().await, [false, false], "the body chooses among the tenants of the key");
    assert_eq!(order("drain", None, json!({})).await.status, 200);
    assert_eq!(drained().await, [true, false], "without both, the first tenant is meant");
    for (header, body) in [("ada", "eve"), ("eve", "ada")] {
        let told = order("drain", Some(header), json!({"tenant": body})).await;
        told.is_problem(400, "invalid_field");
        assert_eq!(told.body["field"], "tenant", "{told:?}");
    }
    assert_eq!(order("resume", Some("ada"), json!({"tenant": "ada"})).await.status, 200);
    assert_eq!(drained().await, [false, false]);
}
