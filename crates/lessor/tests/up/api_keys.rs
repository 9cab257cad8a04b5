//! API keys with the real binary: the first one from `lessor init`, others from `lessor key`, and what a server without them
//! refuses.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::{Server, lessor};

const SMALL: [&str; 4] = ["--segment-mib", "32", "--preallocate-mib", "1"];

/// Creates an admin key in a data directory, offline.
pub(crate) fn init(data: &Path, arguments: &[&str]) -> Output {
    lessor(&["init", "--data"]).arg(data).args(SMALL).args(arguments).output().unwrap()
}

pub(crate) fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap().trim().to_owned()
}

pub(crate) fn key(server: &Server, admin: &str, arguments: &[&str]) -> Output {
    lessor(&["key", "--url", &server.url()]).env("LESSOR_API_KEY", admin).args(arguments).output().unwrap()
}

/// The status of a read with this key.
pub(crate) fn status(server: &Server, key: &str, path: &str) -> u16 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.get(format!("{}{path}", server.url())).bearer_auth(key);
    runtime.block_on(request.send()).unwrap().status().as_u16()
}

#[test]
fn the_first_key_comes_from_init_and_makes_others_until_they_are_revoked() {
    let dir = tempfile::tempdir().unwrap();
    let admin = printed(&init(&dir.path().join("data"), &[]));
    assert!(admin.starts_with("lsk_") && admin.len() == 85, "{admin}");
    let again = init(&dir.path().join("data"), &[]);
    assert!(!again.status.success());
    assert!(String::from_utf8_lossy(&again.stderr).contains("named admin already"), "{again:?}");
    let server = Server::start_in(dir, "127.0.0.1:0", &["--auth", "keys", "--no-worker"]);
    assert_eq!(status(&server, "nonsense", "/v1/tasks"), 401);
    assert_eq!(status(&server, "nonsense", "/healthz"), 200, "health needs no key");
    assert_eq!(status(&server, &admin, "/v1/tasks"), 200);
    let options = ["create", "--name", "ci", "--tenant", "default", "--role", "reader", "--expires", "90d"];
    let ci = printed(&key(&server, &admin, &options));
    assert_eq!(status(&server, &ci, "/v1/tasks"), 200);
    assert_eq!(status(&server, &ci, "/v1/keys"), 403);
    let listed = printed(&key(&server, &admin, &["list"]));
    assert!(listed.contains("ci") && listed.contains("reader") && listed.contains(" in "), "{listed}");
    let json: Value = serde_json::from_str(&printed(&key(&server, &admin, &["list", "--json"]))).unwrap();
    assert_eq!(json["keys"].as_array().unwrap().len(), 2);
    let secret = ci.rsplit('_').next().unwrap();
    assert!(!listed.contains(secret) && !json.to_string().contains(secret), "no list has a secret");
    let denied = key(&server, &ci, &["list"]);
    let told = String::from_utf8_lossy(&denied.stderr).into_owned();
    assert!(
        denied.status.code() == Some(1) && told.contains("admin") && told.contains("GET /v1/keys"),
        "{told}"
    );
    assert!(key(&server, &admin, &["revoke", "ci"]).status.success());
    assert_eq!(status(&server, &ci, "/v1/tasks"), 401);
    let unknown = key(&server, &admin, &["revoke", "ci"]);
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no key ci"), "{unknown:?}");
    let dump = lessor(&["log", "--data"]).arg(server.data()).args(["dump", "--json"]).output().unwrap();
    let dump = printed(&dump);
    assert!(dump.contains("KeyCreated") && dump.contains("\"revokedBy\":\"admin\""), "{dump}");
    let id = admin.split('_').nth(1).unwrap();
    let by = format!(r#""by":{{"id":"{id}","kind":"key","name":"admin"}}"#);
    assert_eq!(dump.matches(&by).count(), 2, "of the creation and the revocation: {dump}");
    assert!(!dump.contains("secretHash"));
    let (_, log) = server.terminate();
    for secret in [secret, admin.rsplit('_').next().unwrap()] {
        assert!(!log.contains(secret), "x19: no log has a secret");
    }
    let lines: Vec<Value> = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let audit = |kind: &str, path: &str| {
        let mut found = lines.iter().filter(|line| line["audit"] == kind && line["path"] == path);
        found.next().unwrap_or_else(|| panic!("no {kind} {path} in {log}")).clone()
    };
    let created = audit("allowed", "/v1/keys");
    assert_eq!((&created["who"], &created["status"]), (&"admin".into(), &201.into()), "{created}");
    assert_eq!(created["from"], "127.0.0.1");
    assert_eq!(audit("denied", "/v1/keys")["who"], "ci");
    assert_eq!(audit("denied", "/v1/tasks")["reason"], "unauthenticated");
}

#[test]
fn beyond_loopback_a_server_without_authentication_does_not_start() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut command = lessor(&["up", "--no-worker", "--listen", "0.0.0.0:0", "--data"]);
    let refused = command.arg(&data).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    let options = ["lessor init --data", "--auth keys", "[[auth.certificates]]", "[[auth.issuers]]"];
    for expected in ["without authentication", "127.0.0.1", "--insecure"].iter().chain(&options) {
        assert!(told.contains(expected), "{expected:?} is missing: {told}");
    }
    // The tables are what a file may have.
    for (from, to) in [
        ("  [server]", "tokens of an issuer"),
        ("  [auth]\n  mode = \"keys\"\n  [[auth.issuers", "this machine"),
    ] {
        let text = &told[told.find(from).unwrap()..told.find(to).unwrap()];
        let file = dir.path().join("lessor.toml");
        std::fs::write(&file, text).unwrap();
        let checked = lessor(&["check-config"]).arg(&file).output().unwrap();
        assert!(checked.status.success(), "{text}\n{checked:?}");
    }
    assert!(!data.exists(), "nothing was touched");
    // The instructions lead to a server that serves.
    let admin = printed(&init(&data, &[]));
    let server = Server::start_in(dir, "0.0.0.0:0", &["--auth", "keys", "--no-worker"]);
    assert_eq!(status(&server, &admin, "/v1/tasks"), 200);
    let (_, log) = server.terminate();
    assert!(!log.contains("everyone who can reach"), "{log}");
    assert!(log.contains("API keys and data travel to") && log.contains("unencrypted"), "{log}");
}

#[test]
fn a_start_on_loopback_says_that_there_is_no_authentication() {
    let mut server = Server::start_with(&["--no-worker"]);
    assert!(server.banner_line("No authentication").contains("--auth keys"));
}

#[test]
fn a_configured_file_gets_the_first_admin_key_and_a_new_key_in_it_replaces_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("admin.key");
    let arguments = ["--auth", "keys", "--no-worker", "--admin-key-file", file.to_str().unwrap()];
    let mut server = Server::start_in(dir, "127.0.0.1:0", &arguments);
    let first = std::fs::read_to_string(&file).unwrap().trim().to_owned();
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(status(&server, &first, "/v1/keys"), 200);
    let other = printed(&init(&tempfile::tempdir().unwrap().path().join("data"), &[]));
    std::fs::write(&file, &other).unwrap();
    server.kill();
    let server = server.start_again(|dir| {
        let mut command = lessor(&["up", "--listen", "127.0.0.1:0", "--data"]);
        command.arg(dir.join("data")).args(SMALL).args(arguments);
        command
    });
    assert_eq!(status(&server, &other, "/v1/keys"), 200);
    assert_eq!(status(&server, &first, "/v1/keys"), 401);
}

#[test]
fn the_worker_inside_runs_actions_of_the_default_tenant_without_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let admin = printed(&init(&dir.path().join("data"), &[]));
    let server = Server::start_in(dir, "127.0.0.1:0", &["--auth", "keys", "--backend", "host"]);
    let options = ["create", "--name", "ci", "--tenant", "default", "--role", "builder"];
    let builder = printed(&key(&server, &admin, &options));
    let run = |key: &str| {
        let mut command = lessor(&["run", "--url", &server.url(), "--", "echo", "built"]);
        command.env("LESSOR_API_KEY", key).output().unwrap()
    };
    assert_eq!(printed(&run(&builder)), "built");
    let options = ["create", "--name", "eyes", "--tenant", "default", "--role", "reader"];
    let refused = run(&printed(&key(&server, &admin, &options)));
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("builder"), "{refused:?}");
}
