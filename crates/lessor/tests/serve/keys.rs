//! Tests the API keys of a cluster: each node follows what is made and revoked through another one.

use std::thread::JoinHandle;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve;
use crate::support::cluster::{Cluster, initialized, node_named};
use crate::support::{Server, send_for_headers};
use test_servers::postgres::shared;

/// Two nodes that need keys, and the key of an admin.
fn guarded() -> (Cluster, String) {
    let url = shared().create_database();
    let directories = ["a", "b"].map(|name| node_named(name, &url));
    let admin_key = directories[0].path().join("admin.key");
    for directory in &directories {
        let file = directory.path().join("lessor.toml");
        let auth = format!("[auth]\nmode = \"keys\"\nadmin_key_file = \"{}\"\n", admin_key.display());
        std::fs::write(&file, std::fs::read_to_string(&file).unwrap() + &auth).unwrap();
    }
    // One after the other: the first one makes the key.
    let start = |(name, dir): (&str, tempfile::TempDir)| {
        (name.to_owned(), Server::start_by(serve(dir.path(), &[]), dir))
    };
    let nodes = ["a", "b"].into_iter().zip(initialized(directories.into())).map(start).collect();
    let admin = std::fs::read_to_string(admin_key).unwrap().trim().to_owned();
    (Cluster { url, nodes }, admin)
}

fn call(server: &Server, method: &str, path: &str, key: &str, body: &Value) -> (u16, Value) {
    let (status, _, text) = send_for_headers(|client| {
        let method = method.parse().unwrap();
        let request = client.request(method, format!("{}{path}", server.url())).bearer_auth(key);
        if body.is_null() { request } else { request.json(body) }
    });
    (status.as_u16(), serde_json::from_str(&text).unwrap_or_default())
}

/// Makes a key for workers: its text and its id.
fn create(server: &Server, admin: &str, name: &str) -> (String, String) {
    let key = json!({"name": name, "tenants": ["default"], "roles": ["worker"]});
    let (status, made) = call(server, "POST", "/v1/keys", admin, &key);
    assert_eq!(status, 201, "{made}");
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    (text("key"), text("keyId"))
}

fn revoke(server: &Server, admin: &str, id: &str) {
    assert_eq!(call(server, "DELETE", &format!("/v1/keys/{id}"), admin, &Value::Null).0, 200);
}

/// Begins a poll with a key, and returns when it waits.
fn begin_poll(server: &Server, admin: &str, key: &str) -> JoinHandle<(u16, Value)> {
    let (url, key) = (server.url(), key.to_owned());
    let poll = std::thread::spawn(move || {
        let body = json!({"workerId": "w", "queues": ["q"], "waitMs": 60_000});
        let (status, _, text) =
            send_for_headers(|client| client.post(format!("{url}/v1/leases")).bearer_auth(key).json(&body));
        (status.as_u16(), serde_json::from_str(&text).unwrap_or_default())
    });
    while call(server, "GET", "/status", admin, &Value::Null).1["polls"] == json!(0) {
        assert!(!poll.is_finished(), "{:?}", poll.join());
    }
    poll
}

fn is_admitted(server: &Server, key: &str) -> bool {
    let poll = json!({"workerId": "other", "queues": ["other"], "waitMs": 0});
    match call(server, "POST", "/v1/leases", key, &poll) {
        (200, _) => true,
        (401, _) => false,
        told => panic!("{told:?}"),
    }
}

#[test]
fn a_key_works_at_every_node_when_it_is_made_and_at_none_when_it_is_revoked() {
    const ROUNDS: usize = 10;
    let (cluster, admin) = guarded();
    for round in 0..ROUNDS {
        // Once the owner is asked, and once the other node.
        let at = |step: usize| &cluster.nodes[(round + step) % 2].1;
        let (key, id) = create(at(0), &admin, "brief");
        assert!(is_admitted(at(1), &key), "round {round}");
        let poll = begin_poll(at(1), &admin, &key);
        revoke(at(0), &admin, &id);
        assert!(!is_admitted(at(1), &key), "round {round}");
        assert!(!is_admitted(at(0), &key), "round {round}");
        let (status, told) = poll.join().unwrap();
        assert_eq!((status, &told["code"]), (401, &json!("unauthenticated")), "{told}");
    }
}

#[test]
fn a_node_that_takes_over_knows_the_keys_and_follows_them_on() {
    let (mut cluster, admin) = guarded();
    let (key, id) = create(&cluster.nodes[0].1, &admin, "brief");
    let mut owner = cluster.take_owner();
    let stays = &cluster.nodes[0].1;
    owner.kill();
    assert!(is_admitted(stays, &key));
    let (other, _) = create(stays, &admin, "later");
    assert!(is_admitted(stays, &other));
    revoke(stays, &admin, &id);
    assert!(!is_admitted(stays, &key));
}

#[test]
fn a_revocation_does_not_wait_for_ever_for_a_node_that_stands_still() {
    let (mut cluster, admin) = guarded();
    let owner = cluster.take_owner();
    let (key, id) = create(&owner, &admin, "brief");
    let other = &cluster.nodes[0].1;
    assert!(is_admitted(other, &key));
    other.signal(Signal::STOP);
    revoke(&owner, &admin, &id);
    let (later, _) = create(&owner, &admin, "later");
    other.signal(Signal::CONT);
    // The owner has cut the connection, so the key that the node does not know makes it read the keys.
    assert!(is_admitted(other, &later));
    assert!(!is_admitted(other, &key));
}
