//! Push dispatch with the real binary: through a crash, and by `https`.

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rcgen::CertifiedKey;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use support::{Server, lessor};
use tempfile::TempDir;

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Takes every task that is sent to it.
struct Target {
    address: SocketAddr,
    arrived: Receiver<std::io::Result<Value>>,
}

impl Target {
    fn start(tls: Option<Arc<ServerConfig>>) -> Target {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (send, arrived) = channel();
        std::thread::spawn(move || {
            // Ends with the test, which then listens no more.
            while let Ok((stream, _)) = listener.accept() {
                if !accept(stream, tls.clone(), &send) {
                    return;
                }
            }
        });
        Target { address, arrived }
    }

    /// The next envelope, or why there was none in a connection.
    fn next(&self) -> std::io::Result<Value> {
        self.arrived.recv_timeout(PATIENCE).expect("nothing arrived")
    }
}

fn accept(stream: TcpStream, tls: Option<Arc<ServerConfig>>, send: &Sender<std::io::Result<Value>>) -> bool {
    let taken = match tls {
        None => take(stream),
        Some(config) => take(StreamOwned::new(ServerConnection::new(config).unwrap(), stream)),
    };
    send.send(taken).is_ok()
}

/// Reads one request and accepts it.
fn take(stream: impl Read + Write) -> std::io::Result<Value> {
    let mut reader = BufReader::new(stream);
    let (mut length, mut line) = (0, String::new());
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let answer = b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    reader.get_mut().write_all(answer)?;
    Ok(serde_json::from_slice(&body).unwrap())
}

fn start(dir: TempDir, arguments: &[&str], certificates: Option<&Path>) -> Server {
    let mut command =
        lessor(&["up", "--segment-mib", "32", "--preallocate-mib", "1", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(dir.path().join("data")).arg("--allow-private-push-targets").args(arguments);
    if let Some(file) = certificates {
        command.env("SSL_CERT_FILE", file);
    }
    Server::start_by(command, dir)
}

/// Calls back as the worker of an envelope.
fn call(envelope: &Value, what: &str, mut body: Value) -> Value {
    let text = |field: &str| envelope[field].as_str().unwrap();
    let url = format!("{}/v1/tasks/{}/{what}", text("callbackBaseUrl"), text("taskId"));
    body["attempt"] = envelope["attempt"].clone();
    body["workerId"] = json!("worker-1");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let call = client.post(url).bearer_auth(text("taskToken")).json(&body);
        call.send().await.unwrap().json().await.unwrap()
    })
}

#[test]
fn p1_a_kill_between_post_and_start_sends_the_same_dispatch_again_and_the_task_commits_once() {
    let target = Target::start(None);
    let mut server = start(tempfile::tempdir().unwrap(), &[], None);
    let url = format!("http://{}/hook", target.address);
    server.run(&["queue", "set", "q", "--push-url", &url, "--push-concurrency", "2"]).ok();
    let task = server.post("/v1/tasks", json!({"queue": "q", "payload": {"n": 1}}));
    let first = target.next().unwrap();
    assert_eq!(first["taskId"], task["taskId"]);
    server.kill();
    let server = server.start_again(|dir| {
        let mut command = lessor(&[
            "up",
            "--segment-mib",
            "32",
            "--preallocate-mib",
            "1",
            "--listen",
            "127.0.0.1:0",
            "--data",
        ]);
        command.arg(dir.join("data")).arg("--allow-private-push-targets");
        command
    });
    let again = target.next().unwrap();
    for field in ["taskId", "dispatchId", "attempt", "fencingToken", "payload"] {
        assert_eq!(again[field], first[field], "{field}");
    }
    assert_eq!(call(&again, "started", json!({}))["acknowledged"], true);
    let ended = call(&again, "completed", json!({"outcome": "SUCCEEDED", "output": 7}));
    assert_eq!(ended["finalState"], "SUCCEEDED");
    let task_id = task["taskId"].as_str().unwrap();
    let history = server.get(&format!("/v1/tasks/{task_id}/history"));
    let kinds: Vec<_> = history["events"].as_array().unwrap().iter().map(|event| &event["type"]).collect();
    let count = |kind: &str| kinds.iter().filter(|one| **one == kind).count();
    assert_eq!((count("LeaseGranted"), count("TaskCompleted")), (1, 1), "{kinds:?}");
}

/// The first attempt falls silent and is repeated; then its worker comes back with a result.
#[test]
fn s1_32_a_late_result_is_logged_and_changes_nothing() {
    let target = Target::start(None);
    let server = start(tempfile::tempdir().unwrap(), &[], None);
    let url = format!("http://{}/hook", target.address);
    let lease = ["--lease", "3s", "--heartbeat-interval", "1s", "--max-attempts", "50"];
    server.run(&[&["queue", "set", "q", "--push-url", &url], &lease[..]].concat()).ok();
    let task = server.post("/v1/tasks", json!({"queue": "q", "payload": 1}));
    let id = task["taskId"].as_str().unwrap();
    let first = target.next().unwrap();
    assert_eq!(call(&first, "started", json!({}))["acknowledged"], true);
    let second = loop {
        let next = target.next().unwrap();
        if next["attempt"] != first["attempt"] {
            break next;
        }
    };
    let before = server.get(&format!("/v1/tasks/{id}"));
    let told = call(&first, "completed", json!({"outcome": "SUCCEEDED", "output": "late"}));
    assert_eq!((&told["error"], &told["receivedAttempt"]), (&json!("attempt_mismatch"), &json!(1)), "{told}");
    server.until_logged("a callback of another attempt was ignored");
    let log = server.log();
    let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = lines.find(|line| line["message"] == "a callback of another attempt was ignored").unwrap();
    assert_eq!((&line["level"], &line["task"], &line["received"]), (&json!("WARN"), &json!(id), &json!(1)));
    let after = server.get(&format!("/v1/tasks/{id}"));
    assert!(after["result"].is_null() && after["state"] != "COMPLETED", "{before} {after}");
    assert!(second["attempt"].as_u64() > first["attempt"].as_u64());
}

/// X5: `https` is what targets speak, and only with a certificate that this machine trusts.
#[test]
fn x5_a_target_is_called_by_https_if_its_certificate_is_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let (config, file) = certificate(dir.path());
    let target = Target::start(Some(config));
    let url = format!("https://localhost:{}/hook", target.address.port());

    let stranger = start(tempfile::tempdir().unwrap(), &[], None);
    stranger.run(&["queue", "set", "q", "--push-url", &url]).ok();
    stranger.post("/v1/tasks", json!({"queue": "q", "payload": 1}));
    assert!(target.next().is_err(), "nothing is said to a target that may be anyone");
    drop(stranger);
    // Other tries of the stranger may have come meanwhile.
    let server =
        start(tempfile::tempdir().unwrap(), &["--callback-url", "https://lessor.example"], Some(&file));
    server.run(&["queue", "set", "q", "--push-url", &url]).ok();
    let task = server.post("/v1/tasks", json!({"queue": "q", "payload": 2}));
    let envelope = std::iter::repeat_with(|| target.next()).find_map(Result::ok).unwrap();
    assert_eq!(envelope["taskId"], task["taskId"]);
    assert_eq!(envelope["callbackBaseUrl"], "https://lessor.example");
}

/// A certificate for this machine, and the file that makes whoever reads it trust it.
fn certificate(dir: &Path) -> (Arc<ServerConfig>, PathBuf) {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let CertifiedKey { cert, signing_key } = rcgen::generate_simple_self_signed(names).unwrap();
    let file = dir.join("trusted.pem");
    std::fs::write(&file, cert.pem()).unwrap();
    let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    (Arc::new(config), file)
}

#[test]
fn a_secret_is_in_no_answer_no_dump_and_no_log() {
    let dir = tempfile::tempdir().unwrap();
    let secret = "a secret of sixteen bytes or more";
    let file = dir.path().join("secret");
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let mut command =
        lessor(&["up", "--segment-mib", "32", "--preallocate-mib", "1", "--listen", "127.0.0.1:0", "--data"]);
    let home = tempfile::tempdir().unwrap();
    command.arg(home.path().join("data")).arg("--allow-private-push-targets").env("LESSOR_LOG", "trace");
    let server = Server::start_by(command, home);
    let target = Target::start(None);
    let url = format!("http://{}/", target.address);
    let set =
        ["queue", "set", "q", "--push-url", &url, "--push-header", "x-key=hush-hush", "--push-secret-file"];
    let output = server.run(&[&set[..], &[file.to_str().unwrap()]].concat()).ok();
    assert!(output.stdout.contains("pushed to") && output.stdout.contains("x-key"), "{output:?}");
    let raised = server.run(&["queue", "set", "q", "--push-concurrency", "3", "--json"]).ok();
    assert_eq!(raised.json()["configured"]["push"]["secret"], "***");
    server.post("/v1/tasks", json!({"queue": "q", "payload": 1}));
    target.next().unwrap();

    let data = server.data();
    let dump =
        support::Ran::from(lessor(&["log", "dump", "--json", "--data"]).arg(&data).output().unwrap()).ok();
    assert!(dump.stdout.contains(r#""x-key":"***""#) && dump.stdout.contains(r#""secret":"***""#));
    let (_, log) = server.terminate();
    for (what, text) in
        [("answer", &output.stdout), ("answer", &raised.stdout), ("dump", &dump.stdout), ("log", &log)]
    {
        assert!(!text.contains("hush") && !text.contains(secret), "the {what} has it: {text}");
    }
}
