//! `lessor worker check`, and the same at a worker's start: S3-61.

use std::io::Read;
use std::path::Path;

use serde_json::Value;

use crate::support::certificates::Authority;
use crate::support::{Ran, lessor};
use crate::support_worker::{Worker, server};

fn check(dir: &Path, arguments: &[&str]) -> Ran {
    let mut command = lessor(&["worker", "check", "--work-dir"]);
    command.arg(dir.join("worker")).args(arguments);
    Ran::from(command.output().unwrap())
}

fn result<'a>(summary: &'a Value, name: &str) -> &'a Value {
    summary["checks"].as_array().unwrap().iter().find(|check| check["name"] == name).unwrap()
}

#[test]
fn s3_61_a_worker_that_could_work_is_told_so_and_nobody_hears_of_it() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let ran = check(dir.path(), &["--server-url", &server.url(), "--json"]).ok();
    let summary = ran.json();
    assert_eq!(summary["ok"], true, "{summary}");
    for name in ["server", "content store", "disk"] {
        assert_eq!(result(&summary, name)["ok"], true, "{summary}");
    }
    assert!(summary["checks"].as_array().unwrap().len() >= 4, "and the backend: {summary}");
    let text = check(dir.path(), &["--server-url", &server.url()]).ok().stdout;
    assert!(text.contains("CHECK") && text.contains("content store"), "{text}");
    assert!(!dir.path().join("worker/worker.id").exists(), "no worker was made");
    assert_eq!(server.get("/v1/workers")["workers"].as_array().unwrap().len(), 0);
}

#[test]
fn s3_61_what_is_wrong_is_said_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let file = dir.path().join("worker.toml");
    std::fs::write(&file, "[worker]\ndisk_reserve_mib = 1000000000000\n").unwrap();
    let arguments = ["--server-url", &nobody, "--config", file.to_str().unwrap(), "--json"];
    let ran = check(dir.path(), &arguments);
    assert_eq!(ran.code, 1, "{ran:?}");
    let summary = ran.json();
    for (name, expected) in
        [("server", "--server-url"), ("content store", "--cas-url"), ("disk", "make room")]
    {
        let check = result(&summary, name);
        assert_eq!(check["ok"], false, "{summary}");
        assert!(check["detail"].as_str().unwrap().contains(expected), "{summary}");
    }
    let text = check(dir.path(), &arguments[..4]);
    assert!(text.code == 1 && text.stdout.contains("FAILED"), "{text:?}");
}

#[test]
fn a_directory_of_somebody_else_is_refused_and_left_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let theirs = dir.path().join("worker/cache/ab");
    std::fs::create_dir_all(&theirs).unwrap();
    std::fs::write(dir.path().join("worker/precious"), "mine").unwrap();
    let ran = check(dir.path(), &["--json"]);
    assert!(ran.code == 1 && ran.stderr.contains("is no worker's directory"), "{ran:?}");
    let mut command = lessor(&["worker", "daemon", "--queue", "jobs", "--work-dir"]);
    let ran = Ran::from(command.arg(dir.path().join("worker")).output().unwrap());
    assert!(ran.code == 1 && ran.stderr.contains("--work-dir"), "{ran:?}");
    assert_eq!(std::fs::read_dir(dir.path().join("worker")).unwrap().count(), 2);
    assert!(theirs.exists());
}

/// The port of another server may be anyone's, so nothing is said to it before its certificate is verified.
#[test]
fn x21_a_server_with_https_is_not_spoken_to_in_plain_text() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let first_byte = std::thread::spawn(move || {
        let mut byte = [0];
        listener.accept().unwrap().0.read_exact(&mut byte).unwrap();
        byte[0]
    });
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new("ours").write(dir.path(), "ca.pem");
    let ran = check(dir.path(), &["--json", "--server-url", &url, "--ca-file", ca.to_str().unwrap()]);
    assert_eq!(first_byte.join().unwrap(), 0x16, "a TLS handshake begins so");
    assert!(ran.code == 1 && !ran.stdout.contains("answers"), "{ran:?}");
    let unsupported = "ftp is not supported, only http, https, grpc and grpcs";
    let arguments = ["worker", "check", "--server-url", "ftp://127.0.0.1:1"];
    Ran::from(lessor(&arguments).output().unwrap()).fails(2, &[unsupported]);
    let file = dir.path().join("worker.toml");
    std::fs::write(&file, "[worker]\nserver_url = \"ftp://host\"\n").unwrap();
    let expected = ["worker.server_url", unsupported];
    check(dir.path(), &["--config", file.to_str().unwrap()]).fails(2, &expected);
    Ran::from(lessor(&["check-config"]).arg(&file).output().unwrap()).fails(2, &expected);
}

#[test]
fn s3_61_a_worker_looks_at_itself_when_it_starts() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let worker = Worker::start(dir.path(), &["--server-url", &server.url()]);
    worker.wait_for_log("working", 1);
    let log = worker.log();
    for expected in ["server: ", "content store: it answers", "disk: "] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    assert_eq!(worker.terminate(), Some(0));
}
