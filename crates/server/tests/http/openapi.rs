//! The OpenAPI document says what is served, no more and no less.

use std::collections::BTreeSet;

use crate::support::{Served, send};
use serde_json::Value;

const ROUTES: [(&str, &str); 34] = [
    ("delete", "/v1/keys/{keyId}"),
    ("get", "/healthz"),
    ("get", "/openapi.json"),
    ("get", "/readyz"),
    ("get", "/v1/instances"),
    ("get", "/v1/keys"),
    ("get", "/v1/queues"),
    ("get", "/v1/queues/{name}"),
    ("get", "/v1/tasks"),
    ("get", "/v1/tasks/{taskId}"),
    ("get", "/v1/tasks/{taskId}/history"),
    ("get", "/v1/workers"),
    ("post", "/internal/worker/claim"),
    ("post", "/internal/worker/complete"),
    ("post", "/internal/worker/fail"),
    ("post", "/internal/worker/heartbeat"),
    ("post", "/v1/keys"),
    ("post", "/v1/leases"),
    ("post", "/v1/leases/{leaseId}/complete"),
    ("post", "/v1/leases/{leaseId}/fail"),
    ("post", "/v1/leases/{leaseId}/heartbeat"),
    ("post", "/v1/leases/{leaseId}/release"),
    ("post", "/v1/tasks"),
    ("post", "/v1/tasks/batch"),
    ("post", "/v1/tasks/{taskId}/cancel"),
    ("post", "/v1/tasks/{taskId}/completed"),
    ("post", "/v1/tasks/{taskId}/heartbeat"),
    ("post", "/v1/tasks/{taskId}/redrive"),
    ("post", "/v1/tasks/{taskId}/started"),
    ("post", "/v1/token-keys/rotate"),
    ("post", "/v1/workers/{workerId}/drain"),
    ("post", "/v1/workers/{workerId}/resume"),
    ("post", "/v1/workers/{workerId}/stop"),
    ("put", "/v1/queues/{name}"),
];

fn document() -> Value {
    serde_json::from_str(server::openapi::text()).unwrap()
}

fn described() -> BTreeSet<(String, String)> {
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let routes = paths.iter().flat_map(|(path, methods)| {
        methods.as_object().unwrap().keys().map(move |method| (method.clone(), path.clone()))
    });
    routes.collect()
}

#[test]
fn the_document_lists_every_route_of_the_contract() {
    let routes: BTreeSet<_> =
        ROUTES.iter().map(|(method, path)| (method.to_string(), path.to_string())).collect();
    assert_eq!(described(), routes);
}

#[tokio::test]
async fn every_route_in_the_document_is_served() {
    let served = Served::start().await;
    for (method, path) in described() {
        let real = path.replace("{name}", "q").replace("{taskId}", "x").replace("{leaseId}", "x");
        let told = send(served.request(&method.to_uppercase(), &real)).await;
        let code = told.body["code"].as_str().unwrap_or("");
        assert!(
            !matches!(code, "not_found" | "method_not_allowed" | "internal"),
            "{method} {path}: {told:?}"
        );
    }
    assert_eq!(served.get("/openapi.json").await.body, document());
}

#[test]
fn every_reference_in_the_document_leads_somewhere() {
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match (name.as_str(), value) {
                ("$ref", Value::String(reference)) => {
                    found.insert(reference.clone());
                }
                _ => references(value, found),
            }),
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let (document, mut found) = (document(), BTreeSet::new());
    references(&document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn the_committed_document_is_fresh() {
    let committed = include_str!("../../../../docs/openapi.json");
    assert!(
        committed == server::openapi::text(),
        "run: cargo run --package server --example openapi > docs/openapi.json"
    );
}
