//! A worker whose disk is full: W16. Needs root, to mount a small one.

use chaos::tmpfs::Tmpfs;
use serde_json::json;

use crate::support_worker::{Worker, registration, server, submit, task, until, until_state};

const DISK_BYTES: u64 = 48 << 20;

#[test]
fn w16_a_worker_with_a_full_disk_takes_nothing_until_there_is_room_again() {
    let (server, dir) = (server(), tempfile::tempdir().unwrap());
    let work_dir = dir.path().join("worker");
    std::fs::create_dir(&work_dir).unwrap();
    let disk = Tmpfs::mount(&work_dir, DISK_BYTES).unwrap();
    let file = dir.path().join("worker.toml");
    std::fs::write(&file, "[worker]\nqueues = [\"jobs\"]\ndisk_reserve_mib = 16\n").unwrap();
    let worker = Worker::start(
        dir.path(),
        &["--config", file.to_str().unwrap(), "--server-url", &server.url(), "--id", "w"],
    );
    let command =
        |arguments: &[&str]| json!({"queue": "jobs", "payload": {"command": arguments}, "maxAttempts": 1});

    until_state(&server, &submit(&server, command(&["true"])), "COMPLETED");
    // A command that fills the disk fails, and not by its own fault.
    let filler = submit(&server, command(&["sh", "-c", "head -c 100000000 /dev/zero > big"]));
    let failed = until_state(&server, &filler, "FAILED");
    let error = &failed["error"];
    assert_eq!(
        (&error["code"], &error["category"]),
        (&json!("disk_full"), &json!("INFRASTRUCTURE")),
        "{failed}"
    );
    // Its directory is gone, and with it what it wrote.
    until_state(&server, &submit(&server, command(&["true"])), "COMPLETED");

    disk.fill().unwrap();
    until(|| (registration(&server, "w")["state"] == "DRAINING").then_some(()));
    assert!(worker.log().contains("the worker is unfit and takes no more tasks"), "{}", worker.log());
    let waiting = submit(&server, command(&["true"]));
    let now = task(&server, &waiting);
    assert_eq!((&now["state"], &now["attempt"]), (&json!("WAITING"), &json!(0)), "{now}");
    disk.free().unwrap();
    let done = until_state(&server, &waiting, "COMPLETED");
    assert_eq!(done["attempt"], 1, "{done}");
    assert_eq!(worker.terminate(), Some(0));
}
