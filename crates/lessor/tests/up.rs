//! `lessor up` as a process: how it starts, how it is stopped, what it refuses, and that a crash loses nothing.

#[path = "up/api_keys.rs"]
mod api_keys;
#[path = "up/audit.rs"]
mod audit;
#[path = "up/clocks.rs"]
mod clocks;
#[path = "up/disk_faults.rs"]
mod disk_faults;
#[path = "up/process_faults.rs"]
mod process_faults;
#[path = "up/redis_streams/mod.rs"]
mod redis_streams;
mod support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use serde_json::json;
use support::{Ran, Server, lessor};
use wire::grpc::RegisterWorkerRequest;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;

/// Tries to start on a directory; it must end by itself.
fn refused(data: &Path) -> Ran {
    refused_with(data, &[])
}

fn refused_with(data: &Path, arguments: &[&str]) -> Ran {
    let cache = tempfile::tempdir().unwrap();
    let mut command = lessor(&["up", "--listen", "127.0.0.1:0", "--data"]);
    Ran::from(command.arg(data).args(arguments).env("XDG_CACHE_HOME", cache.path()).output().unwrap())
}

/// The first segment of a ledger.
fn segment(data: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(data.join("ledger")).unwrap().map(|file| file.unwrap().path());
    files.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("segment-")).min().unwrap()
}

#[test]
fn p1_a_kill_loses_nothing_and_a_lease_outlives_it() {
    let server = Server::start();
    let task = server.post("/v1/tasks", json!({"queue": "q", "payload": {"n": 1}}));
    let lease = server.lease("q");
    let server = server.crash_and_restart();
    let path = format!("/v1/leases/{}/complete", lease["leaseId"].as_str().unwrap());
    let report = json!({"workerId": "w1", "taskId": task["taskId"], "result": [1, 2]});
    let first = server.post(&path, report.clone());
    assert_eq!((&first["verdict"], &first["state"]), (&json!("COMMITTED"), &json!("COMPLETED")));
    let server = server.crash_and_restart();
    assert_eq!(server.post(&path, report), first, "the same report gets the same answer after another crash");
    let ran = server.run(&["task", "get", task["taskId"].as_str().unwrap(), "--json"]);
    assert_eq!(ran.json()["result"], json!([1, 2]));
}

#[test]
fn p5_a_signal_stops_it_and_ends_a_long_poll_empty() {
    let server = Server::start();
    let poll =
        server.spawn_post("/v1/leases", &json!({"workerId": "w", "queues": ["empty"], "waitMs": 60_000}));
    server.until_a_worker_asked();
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("everything accepted is durable"), "{log}");
    assert_eq!(poll.join().unwrap(), json!({"leases": []}));
}

#[test]
fn p10_a_second_one_on_the_same_data_is_refused() {
    let server = Server::start();
    let ran = refused(&server.data());
    ran.fails(3, &["in use", server.data().to_str().unwrap(), "another lessor"]);
    server.post("/v1/tasks", json!({"queue": "q", "payload": 1}));
}

#[test]
fn a_port_that_is_taken_is_named() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let output =
        lessor(&["up", "--listen", &server.address(), "--data"]).arg(dir.path().join("d")).output().unwrap();
    let ran = Ran::from(output);
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.contains(&server.address()) && ran.stderr.contains("--listen"), "{}", ran.stderr);
}

#[test]
fn d26_a_foreign_directory_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    let ran = refused(dir.path());
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("not empty"), "{}", ran.stderr);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_in_words_that_are_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let (file, data) = (dir.path().join("file"), dir.path().join("data"));
    fs::write(&file, "mine").unwrap();
    for path in [file.clone(), file.join("below"), "/proc/no-such-place".into()] {
        let ran = refused(&path).fails(3, &[path.to_str().unwrap()]);
        assert_eq!(ran.stderr.matches("os error").count(), 1, "{ran:?}");
    }
    let mut child = serves_with(&data, std::process::Stdio::null());
    child.kill().unwrap();
    child.wait().unwrap();
    let before = fs::read(segment(&data)).unwrap();
    let mut key = fs::read(data.join("lease.key")).unwrap();
    key[7] ^= 1;
    fs::write(data.join("lease.key"), key).unwrap();
    refused(&data).fails(3, &["lease.key", "damaged"]);
    fs::write(data.join("lease.key"), "short").unwrap();
    refused(&data).fails(3, &["lease.key", "damaged"]);
    assert_eq!(fs::read(segment(&data)).unwrap(), before, "nothing was changed");
    fs::remove_dir_all(data.join("content")).unwrap();
    fs::write(data.join("content"), "").unwrap();
    refused(&data).fails(3, &["content"]);
}

/// `up` began a new history beside the key and the content of the lost one.
#[test]
fn d26_an_empty_ledger_next_to_other_data_is_refused() {
    let mut server = Server::start();
    server.kill();
    let ledger = server.data().join("ledger");
    fs::remove_dir_all(&ledger).unwrap();
    fs::create_dir(&ledger).unwrap();
    refused(&server.data()).fails(3, &[ledger.to_str().unwrap(), "empty", "restore"]);
    assert_eq!(fs::read_dir(&ledger).unwrap().count(), 0, "nothing was touched");
}

/// Each server of a test run wrote two segments of zeros, 100 GB in all.
#[test]
fn a_server_of_a_test_allocates_little() {
    let server = Server::start();
    let ledger = server.data().join("ledger");
    while !ledger.join("reserve").exists() {
        std::thread::yield_now();
    }
    let files = fs::read_dir(&ledger).unwrap().map(|file| file.unwrap().metadata().unwrap());
    let allocated: u64 = files.map(|file| file.blocks() * 512).sum();
    assert!(allocated < 8 << 20, "{allocated} bytes");
    assert_eq!(fs::metadata(ledger.join("reserve")).unwrap().len(), 32 << 20, "the format is the same");
}

/// Only a checkpoint makes content safe from a power loss, and there was none before the next full minute.
#[test]
fn a_clean_stop_checkpoints_the_content_store() {
    let outer = tempfile::tempdir().unwrap();
    let mut dir = tempfile::tempdir_in(outer.path()).unwrap();
    dir.disable_cleanup(true);
    let server = Server::start_in(dir, "127.0.0.1:0", &[]);
    let packs = server.data().join("content/packs");
    server.put_blob(b"hello".to_vec());
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    let files = fs::read_dir(&packs).unwrap().map(|file| file.unwrap().path());
    let lists = files.filter(|path| path.extension().is_some_and(|extension| extension == "list"));
    assert_eq!(lists.count(), 1, "a list of the pack's records that are safe");
}

/// Otherwise everything that waits for it would wait without an explanation.
#[test]
fn a_worker_that_cannot_work_ends_the_server_in_good_order_and_is_named() {
    let mut server = Server::start();
    server.kill();
    let file = tempfile::NamedTempFile::new().unwrap();
    let ran = refused_with(&server.data(), &["--work-dir", file.path().to_str().unwrap()]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for expected in ["worker of this process has failed", "--no-worker", "everything accepted is durable"] {
        assert!(ran.stderr.contains(expected), "{expected:?} is missing: {ran:?}");
    }
}

/// Without a worker there was no warning, and anybody could write results for others.
#[test]
fn on_an_open_address_it_warns_and_clients_do_not_write_to_the_action_cache() {
    let warning = "can submit, lease and cancel tasks, and run commands on";
    for (arguments, status) in [
        (&["--insecure", "--no-worker"][..], 403),
        (&["--insecure", "--no-worker", "--allow-action-cache-updates"], 200),
    ] {
        let server = Server::start_in(tempfile::tempdir().unwrap(), "0.0.0.0:0", arguments);
        let url = format!("{}/ac/{}", server.url(), "a".repeat(64));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let put = runtime.block_on(client.put(url).body("x").send()).unwrap();
        assert_eq!(put.status(), status, "{arguments:?}");
        let (_, log) = server.terminate();
        assert!(log.contains(warning) && log.contains("no authentication"), "{log}");
    }
}

/// Anybody who reaches the server can register under the name of its worker.
#[test]
fn the_worker_inside_takes_its_name_back_and_works_on() {
    let server = Server::start();
    let worker_id = loop {
        let workers = server.get("/v1/workers")["workers"].take();
        let mut workers = workers.as_array().unwrap().iter();
        if let Some(known) = workers.find(|known| known["registration"]["sessionId"].is_string()) {
            break known["workerId"].as_str().unwrap().to_owned();
        }
    };
    let thief = RegisterWorkerRequest { worker_id, session_id: "thief".to_owned(), ..Default::default() };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut client = WorkerSchedulerClient::connect(server.url()).await.unwrap();
        client.register_worker(thief).await.unwrap();
    });
    // If it waits for tasks, it learns by this one that it was replaced.
    let ran = server.run(&["submit", "exec", r#"{"command": ["true"]}"#, "--wait"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let (code, log) = server.terminate();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("lost its name"), "{log}");
}

/// Regression: without keys and TLS, the worker inside connected by a socket like any client of its tenant, and counted toward
/// the tenant's limits.
#[test]
fn the_worker_inside_needs_no_socket_of_the_server() {
    let server = Server::start();
    server.until_a_worker_asked();
    server.run(&["run", "-q", "--", "true"]).ok();
    let port = format!(":{:04X}", server.address().rsplit_once(':').unwrap().1.parse::<u16>().unwrap());
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // The local address, the remote one, and the state, which is 01 while a connection is open.
    let open = |line: &&str| {
        let mut columns = line.split_whitespace().skip(1);
        columns.next().is_some_and(|local| local.ends_with(&port)) && columns.nth(1) == Some("01")
    };
    let open: Vec<&str> = sockets.lines().filter(open).collect();
    assert!(open.is_empty(), "{open:#?}");
}

#[test]
fn d9_a_flipped_bit_in_an_acknowledged_record_is_refused_by_place() {
    let mut server = Server::start();
    for n in 0..5 {
        server.post("/v1/tasks", json!({"queue": "q", "payload": n}));
    }
    server.kill();
    let path = segment(&server.data());
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    // The second frame: the first holds the record of the owner.
    let mut byte = [0];
    file.read_exact_at(&mut byte, 2 * 512 + 100).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 2 * 512 + 100).unwrap();
    let before = fs::read(&path).unwrap();
    let ran = refused(&server.data());
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("segment-") && ran.stderr.contains("positions at risk"), "{}", ran.stderr);
    assert_eq!(fs::read(&path).unwrap(), before, "nothing was changed");
}

#[test]
fn nonsense_on_the_command_line_is_refused_with_a_hint() {
    for (arguments, hint) in [
        (vec!["up", "--listen", "nowhere"], "--listen"),
        (vec!["up", "--listen", ":9181"], "such as 127.0.0.1:8980"),
        (vec!["up", "--metrics-queue", ""], "--metrics-queue"),
        (vec!["up", "--segment-mib", "1"], "--segment-mib"),
        (vec!["up", "--max-state-mib", "0"], "--max-state-mib"),
        (vec!["upp"], "up"),
    ] {
        let ran = Ran::from(lessor(&arguments).output().unwrap());
        assert_eq!(ran.code, 2, "{arguments:?}");
        assert!(ran.stderr.contains(hint), "{}", ran.stderr);
    }
}

#[test]
fn s3_59_the_log_names_task_attempt_and_lease() {
    let server = Server::start();
    let task = server.post("/v1/tasks", json!({"queue": "q", "payload": 1}));
    let lease = server.lease("q");
    let path = format!("/v1/leases/{}/complete", lease["leaseId"].as_str().unwrap());
    server.post(&path, json!({"workerId": "w1", "result": null}));
    let (_, log) = server.terminate();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let about = |message: &str| lines.iter().find(|line| line["message"] == message).cloned().unwrap();
    assert_eq!(about("task submitted")["task"], task["taskId"]);
    assert_eq!(about("lease granted")["attempt"], 1);
    assert_eq!(about("task completed")["lease"], lease["fencingToken"]);
}

/// Starts with this standard output, and returns once it serves.
fn serves_with(data: &Path, stdout: std::process::Stdio) -> std::process::Child {
    let mut child =
        lessor(&["up", "--segment-mib", "32", "--preallocate-mib", "1", "--listen", "127.0.0.1:0", "--data"])
            .arg(data)
            .env("XDG_CACHE_HOME", data.with_file_name("cache"))
            .stdin(std::process::Stdio::null())
            .stdout(stdout)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
    let log = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(log).map(|line| line.unwrap());
    assert!(lines.any(|line| line.contains(r#""message":"serving""#)), "it ended before it served");
    child
}

#[test]
fn a_standard_output_that_takes_nothing_is_no_reason_to_stop() {
    let dir = tempfile::tempdir().unwrap();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = serves_with(&dir.path().join("data"), full.into());
    assert!(child.try_wait().unwrap().is_none(), "it goes on serving");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn d4_an_address_that_cannot_be_written_down_is_no_reason_to_stop() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let mut child = serves_with(&data, std::process::Stdio::null());
    child.kill().unwrap();
    child.wait().unwrap();
    fs::remove_file(data.join("listen")).unwrap();
    fs::create_dir(data.join("listen")).unwrap();
    let mut child = serves_with(&data, std::process::Stdio::null());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The data directory was readable by every user of the machine.
#[test]
fn the_data_directory_is_closed_to_other_users_also_one_that_was_open() {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let check = |data: &Path| {
        assert_eq!((mode(data), mode(&data.join("ledger"))), (0o700, 0o700));
        assert_eq!(mode(&data.join("lease.key")), 0o600);
        for file in fs::read_dir(data.join("ledger")).unwrap().map(|file| file.unwrap().path()) {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    };
    let mut server = Server::start();
    check(&server.data());
    server.kill();
    let data = server.data();
    for file in fs::read_dir(data.join("ledger")).unwrap().map(|file| file.unwrap().path()) {
        fs::set_permissions(file, fs::Permissions::from_mode(0o644)).unwrap();
    }
    fs::set_permissions(data.join("lease.key"), fs::Permissions::from_mode(0o644)).unwrap();
    fs::set_permissions(data.join("ledger"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(data.join("worker/cache")).unwrap();
    let server = server.crash_and_restart();
    check(&server.data());
    while server.data().join("worker").exists() {
        std::thread::yield_now();
    }
}
