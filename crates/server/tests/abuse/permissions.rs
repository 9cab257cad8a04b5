//! The matrix of roles and calls. The calls come from the routers, the descriptors and the generated dispatchers; who may make
//! them comes from the table in docs/security.md, which people read and review.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::json;
use server::permissions::{Access, CALLS, GRPC};
use wire::grpc::SERVICE_NAMES;

use crate::guarded::Guarded;
use crate::served_calls::{CallName, grpc_calls, served_calls};
use crate::support::send;

const ROLES: [&str; 7] = ["reader", "submitter", "worker", "builder", "cache-writer", "operator", "admin"];
/// The table of docs/security.md: who may make each call.
fn documented() -> BTreeMap<CallName, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let text = std::fs::read_to_string(path).unwrap();
    let (_, table) = text.split_once("<!-- calls -->\n").unwrap();
    let (table, _) = table.split_once("<!-- end of calls -->").unwrap();
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (method, path) = cells[0].trim_matches('`').split_once(' ').unwrap();
        ((method.to_owned(), path.to_owned()), cells[1].to_owned())
    };
    table.lines().skip(2).map(row).collect()
}

#[tokio::test]
async fn x22_every_call_that_is_served_has_a_row_and_every_row_a_call() {
    let rows: BTreeSet<CallName> =
        CALLS.iter().map(|call| (call.method.to_owned(), call.path.to_owned())).collect();
    assert_eq!(rows.len(), CALLS.len(), "no call has two rows");
    let served = served_calls().await;
    let without: Vec<_> = served.difference(&rows).collect();
    assert!(without.is_empty(), "without a row: {without:?}");
    let stale: Vec<_> = rows.difference(&served).collect();
    assert!(stale.is_empty(), "without a call: {stale:?}");
}

#[test]
fn the_documented_table_of_permissions_is_that_of_the_code() {
    let rows: BTreeMap<CallName, String> = CALLS
        .iter()
        .map(|call| ((call.method.to_owned(), call.path.to_owned()), call.access.describe()))
        .collect();
    let table: String = CALLS
        .iter()
        .map(|call| format!("| `{} {}` | {} |\n", call.method, call.path, call.access.describe()))
        .collect();
    assert!(documented() == rows, "docs/security.md must have between its marks:\n{table}");
}

/// Others are over so soon that the end of their key does not matter.
#[test]
fn calls_that_wait_or_move_data_end_with_their_key() {
    let ends = |path: &str| {
        [
            "/lease",
            "/claim",
            "/drain",
            "/stop",
            "/instances",
            "/cas/",
            "/ac/",
            "LeaseTask",
            "/Work",
            "Blobs",
            "/GetTree",
        ]
        .iter()
        .chain(&["ByteStream/Read", "ByteStream/Write", "/UpdateActionResult", "/Execute", "/WaitExecution"])
        .chain(&["/WaitOperation", "ServerReflection/"])
        .any(|part| path.contains(part))
    };
    for call in CALLS.iter().filter(|call| !call.is_long) {
        let is_short = call.path.starts_with("/v1/leases/") || call.path.ends_with("/FindMissingBlobs");
        assert!(is_short || !ends(call.path), "{} {}", call.method, call.path);
    }
}

/// A path that a request can have, with names of things that are not there.
fn real(pattern: &str) -> String {
    pattern
        .replace("{taskId}", "01900000-0000-7000-8000-000000000001")
        .replace("{leaseId}", "x")
        .replace("{workerId}", "w")
        .replace("{keyId}", "0123456789abcdef")
        .replace("{name}", "q")
        .replace("{prefix}", "some")
        .replace("{hash}", &"0".repeat(64))
}

/// How the layer answers a call: none when it lets it through.
async fn denial(guarded: &Guarded, key: Option<&str>, method: &str, pattern: &str) -> Option<u16> {
    if method == GRPC {
        let (status, message) = guarded.grpc(key, pattern).await;
        return match status {
            Some(16) => Some(401),
            Some(7)
                if message.contains("needs%20one%20of%20the%20roles") || message.contains("needs one of") =>
            {
                assert!(message.contains(pattern), "{message}");
                Some(403)
            }
            _ => None,
        };
    }
    let mut request = guarded.served.request(method, &real(pattern));
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    if method != "GET" {
        request = request.header("content-type", "application/json").body("{}");
    }
    let response = request.send().await.unwrap();
    match response.status().as_u16() {
        // Streams have no end, and need not be read.
        401 | 403 => {}
        _ => return None,
    }
    let told = send_again(guarded, key, method, pattern).await;
    match told.body["code"].as_str() {
        Some("unauthenticated") => {
            assert_eq!(told.headers.get_all("www-authenticate").iter().count(), 2, "{told:?}");
            Some(401)
        }
        Some("forbidden") => {
            let detail = told.text("detail");
            assert!(detail.contains(&format!("{method} {pattern}")) && detail.contains("roles"), "{detail}");
            Some(403)
        }
        _ => None,
    }
}

async fn send_again(
    guarded: &Guarded,
    key: Option<&str>,
    method: &str,
    pattern: &str,
) -> crate::support::Told {
    let mut request = guarded.served.request(method, &real(pattern));
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    send(request.header("content-type", "application/json").body("{}")).await
}

#[tokio::test]
async fn x22_every_role_makes_the_calls_of_its_row_and_no_other() {
    let guarded = Guarded::start().await;
    let mut keys = Vec::new();
    for role in ROLES {
        let tenants = if role == "admin" { json!([]) } else { json!(["default"]) };
        let made = guarded.create(json!({"name": role, "tenants": tenants, "roles": [role]})).await;
        keys.push((role, made.0));
    }
    let documented = documented();
    for call @ (method, pattern) in &served_calls().await {
        let who = documented.get(call).unwrap_or_else(|| panic!("{call:?} has no row in docs/security.md"));
        let open = who == "anyone" || who == "task token";
        // A callback without a task token is refused by itself, in the words of its contract.
        let denied = denial(&guarded, None, method, pattern).await;
        assert_eq!(denied, (!open).then_some(401), "{method} {pattern} without a key");
        for (role, key) in &keys {
            let may = open || who == "any key" || who.split(", ").any(|name| name == *role);
            let denied = denial(&guarded, Some(key), method, pattern).await;
            assert_eq!(denied, (!may).then_some(403), "{method} {pattern} as {role}");
        }
    }
    // The other names of the service of workers go by the same rows.
    let (_, reader) = &keys[0];
    let [own, others @ ..] = SERVICE_NAMES;
    for call in grpc_calls().iter().filter_map(|call| call.strip_prefix(own)) {
        for name in others {
            assert_eq!(
                guarded.grpc(Some(reader), &format!("/{name}{call}")).await.0,
                Some(7),
                "{name}{call}"
            );
        }
    }
}

#[tokio::test]
async fn a_call_without_a_row_is_denied_and_a_path_without_a_call_is_not_found() {
    let guarded = Guarded::start().await;
    let told = send(guarded.request(&guarded.admin, "DELETE", "/v1/tasks")).await;
    told.is_problem(403, "forbidden");
    guarded.get(&guarded.admin, "/v1/nothing").await.is_problem(404, "not_found");
    guarded.served.get("/v1/nothing").await.is_problem(401, "unauthenticated");
    assert!(CALLS.iter().filter(|call| call.access == Access::Anyone).count() <= 3);
}

/// Regression: such a path was taken for one of the HTTP cache by the table and for a call of a worker by the router.
#[tokio::test]
async fn x22_no_path_reaches_a_call_of_grpc_by_the_row_of_another_call() {
    let guarded = Guarded::start().await;
    let key = guarded.key("ci", "default", &["builder", "cache-writer"]).await;
    for service in SERVICE_NAMES {
        for call in ["RegisterWorker", "LeaseTask", "UpdateTaskStatus", "SubmitTasks", "Work"] {
            for (method, kind) in
                [("GET", "ac"), ("GET", "cas"), ("HEAD", "ac"), ("PUT", "ac"), ("PUT", "cas")]
            {
                let path = format!("/{service}/{kind}/{call}");
                let request = guarded.request(&key, method, &path).header("content-type", "application/grpc");
                let told = request.body(vec![0; 5]).send().await.unwrap();
                let status =
                    told.headers().get("grpc-status").map(|status| status.to_str().unwrap().to_owned());
                assert_eq!(status.as_deref(), Some("7"), "{method} {path}: {told:?}");
            }
        }
    }
}
