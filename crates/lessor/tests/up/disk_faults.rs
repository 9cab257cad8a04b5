//! Data directories that fail, are copied, or belong to somebody else. Needs root.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use chaos::ext4::Ext4;
use serde_json::json;

use crate::support::worker::coordinator;
use crate::support::{Ran, Server};
use crate::{refused, segment};

/// A user without rights, whose number is the same on every Linux.
const NOBODY: u32 = 65_534;

/// ext4 does this by itself after an error of its disk. What was not acknowledged may be there or not.
#[test]
fn d22_a_file_system_that_becomes_read_only_ends_the_server_and_loses_nothing() {
    let (dir, image) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    fs::create_dir(dir.path().join("data")).unwrap();
    let disk = Ext4::mount(&dir.path().join("data"), &image.path().join("image")).unwrap();
    let mut server = Server::start_by(coordinator(dir.path(), "127.0.0.1:0"), dir);
    let task = server.post("/v1/tasks", json!({"queue": "q", "payload": "acknowledged"}));
    disk.make_read_only().unwrap();
    let answer = server.try_post("/v1/tasks", &json!({"queue": "q", "payload": "unknown"}));
    assert!(!answer.starts_with("HTTP/1.1 2"), "it was acknowledged: {answer}");
    assert_eq!(server.ended().code(), Some(4), "{}", server.log());
    assert!(server.log().contains("the ledger failed"), "{}", server.log());

    disk.repair().unwrap();
    let mut server = server.start_again(|dir| coordinator(dir, "127.0.0.1:0"));
    let id = task["taskId"].as_str().unwrap();
    assert_eq!(server.get(&format!("/v1/tasks/{id}"))["payload"], "acknowledged");
    server.complete(&server.lease("q"), json!(1));
    assert_eq!(server.get(&format!("/v1/tasks/{id}"))["state"], "COMPLETED");
    // The directory on which it is mounted is removed with the server.
    server.kill();
    drop(disk);
}

/// The same directory under another name is the same directory. A copy is a history of its own: nobody on this machine can
/// know which of the two is meant to go on.
#[test]
fn d23_a_directory_under_another_name_is_refused_and_a_copy_goes_its_own_way() {
    let server = Server::start();
    let before = server.post("/v1/tasks", json!({"queue": "q", "payload": 1}));
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link");
    symlink(server.data(), &link).unwrap();
    refused(&link).fails(3, &["in use", "another lessor"]);

    let status = Command::new("cp").arg("-a").arg(server.data()).arg(elsewhere.path()).status().unwrap();
    assert!(status.success());
    let copy = Server::start_by(coordinator(elsewhere.path(), "127.0.0.1:0"), elsewhere);
    for (one, other, payload) in [(&server, &copy, 2), (&copy, &server, 3)] {
        let path = |task: &serde_json::Value| format!("/v1/tasks/{}", task["taskId"].as_str().unwrap());
        assert_eq!(one.get(&path(&before))["payload"], 1, "both have what was there when it was copied");
        let new = one.post("/v1/tasks", json!({"queue": "q", "payload": payload}));
        assert_eq!(one.get(&path(&new))["payload"], payload);
        let listed = other.get("/v1/tasks?queue=q");
        assert!(!listed.to_string().contains(new["taskId"].as_str().unwrap()), "{listed}");
    }
}

/// Every file below a directory with its content, its owner and its mode.
fn contents(directory: &Path, found: &mut Vec<(PathBuf, Vec<u8>, u32)>) {
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            contents(&path, found);
        } else {
            let mode = entry.metadata().unwrap().permissions().mode();
            found.push((path.clone(), fs::read(&path).unwrap(), mode));
        }
    }
    found.sort();
}

fn own(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| own(&entry.unwrap().path(), user));
    }
}

/// As after a start by root, or a restore by another user. The server runs as a user that must not open one of its files.
#[test]
fn d24_a_file_of_another_user_is_refused_by_name_and_nothing_is_changed() {
    let mut server = Server::start();
    for payload in 0..3 {
        server.post("/v1/tasks", json!({"queue": "q", "payload": payload}));
    }
    server.kill();
    let data = server.data();
    // The user can reach neither the build directory nor the temporary directory of root.
    let home = tempfile::tempdir().unwrap();
    for path in [home.path(), data.parent().unwrap()] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let binary = home.path().join("lessor");
    fs::copy(env!("CARGO_BIN_EXE_lessor"), &binary).unwrap();
    for file in [segment(&data), data.join("ledger/identity"), data.join("ledger")] {
        own(&data, NOBODY);
        own(&file, 0);
        let mut before = Vec::new();
        contents(&data, &mut before);
        let mut command = Command::new(&binary);
        command.args(["up", "--no-worker", "--listen", "127.0.0.1:0", "--data"]).arg(&data);
        let ran = Ran::from(command.env_clear().uid(NOBODY).gid(NOBODY).output().unwrap());
        ran.fails(3, &["denied", data.to_str().unwrap()]);
        let mut after = Vec::new();
        contents(&data, &mut after);
        assert!(before == after, "{} was not allowed, and something was changed", file.display());
    }
}
