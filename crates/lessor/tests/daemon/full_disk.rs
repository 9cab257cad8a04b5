//! Full disks: a worker's (W16), and the content store's. Needs root, to mount small ones.

use chaos::tmpfs::Tmpfs;
use serde_json::json;

use crate::support::{Server, lessor};
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

/// With less than 1 GiB free, the cache was emptied and every upload was refused, whatever the size of the disk.
#[test]
fn the_content_store_fills_a_small_disk_up_to_the_configured_reserve() {
    let dir = tempfile::tempdir().unwrap();
    let content = dir.path().join("content");
    std::fs::create_dir(&content).unwrap();
    let _disk = Tmpfs::mount(&content, 192 << 20).unwrap();
    let (data, file) = (dir.path().join("data"), dir.path().join("server.toml"));
    let text = format!(
        "[server]\naddress = \"127.0.0.1:0\"\n[data]\ndir = {data:?}\nsegment_mib = 32\npreallocate_mib = 1\n\
         [storage]\nmin_free_mib = 16\n[storage.cas]\nroot_dir = {content:?}\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut command = lessor(&["serve", "--init", "--config"]);
    command.arg(&file);
    let server = Server::start_by(command, dir);
    // The free space is checked every 64 MiB.
    let paths: Vec<_> = (1..=5).map(|n| server.put_blob(vec![n; 20 << 20])).collect();
    for path in paths {
        assert!(server.has_blob(&path), "{path} was evicted with 76 MiB free");
    }
}
