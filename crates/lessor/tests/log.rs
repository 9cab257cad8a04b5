//! `lessor log` as its users run it: beside a server that writes, after one was killed, on a damaged copy, and on
//! directories that hold no ledger.

mod support;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use support::{Ran, Server, lessor};

fn log(data: &Path, arguments: &[&str]) -> Ran {
    Ran::from(lessor(&["log"]).args(arguments).arg("--data").arg(data).output().unwrap())
}

fn lines(ran: &Ran) -> Vec<Value> {
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn submit(server: &Server, queue: &str, payload: Value) -> String {
    let task = server.post("/v1/tasks", json!({"queue": queue, "payload": payload}));
    task["taskId"].as_str().unwrap().to_owned()
}

/// Every file below a directory, with its content.
fn content(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    // The reserve holds nothing, and gets its name while the server runs.
    let files = files.filter(|path| !path.file_name().unwrap().to_string_lossy().starts_with("reserve"));
    let mut files: Vec<_> = files.map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

/// A copy of a data directory, as a backup would be.
fn copy(data: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("ledger")).unwrap();
    for (path, bytes) in content(&data.join("ledger")) {
        fs::write(dir.path().join("ledger").join(path.file_name().unwrap()), bytes).unwrap();
    }
    dir
}

fn segment(data: &Path) -> PathBuf {
    let names = content(&data.join("ledger")).into_iter().map(|(path, _)| path);
    names.into_iter().find(|path| path.to_string_lossy().contains("segment-")).unwrap()
}

fn flip(path: &Path, offset: u64) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

#[test]
fn p10_it_reads_beside_a_server_that_writes() {
    let server = Server::start();
    let tasks: Vec<_> = (0..1_000).map(|n| json!({"queue": "q", "payload": n})).collect();
    let batch = json!({"tasks": tasks});
    let mut seen = 0;
    for _ in 0..10 {
        let writers: Vec<_> = (0..3).map(|_| server.spawn_post("/v1/tasks/batch", &batch)).collect();
        let report = log(&server.data(), &["verify", "--json"]).ok().json();
        assert_eq!((&report["ok"], &report["damages"]), (&json!(true), &json!([])));
        let records = report["records"].as_u64().unwrap();
        assert!(records >= seen, "what was there once stays");
        seen = records;
        writers.into_iter().for_each(|writer| drop(writer.join().unwrap()));
    }
    let state = log(&server.data(), &["state", "--json"]).ok().json();
    assert_eq!(state["queues"][0]["counts"]["waiting"], 30_000);
    submit(&server, "q", json!("and the server goes on"));
}

#[test]
fn p1_after_a_kill_everything_acknowledged_is_there_and_nothing_is_changed() {
    let mut server = Server::start();
    let id = submit(&server, "mail", json!({"to": "you", "n": 1.50}));
    let lease = server.lease("mail");
    server.complete(&lease, json!("sent"));
    server.kill();
    let data = server.data();
    let before = content(&data.join("ledger"));

    let ran = log(&data, &["verify"]).ok();
    for part in ["sound", "segments", "records", "digest", "whole; every record was applied"] {
        assert!(ran.stdout.contains(part), "{part:?} is missing: {ran:?}");
    }
    assert_eq!(ran.stderr, "", "no progress bar where there is no terminal");

    let records = lines(&log(&data, &["dump"]).ok());
    let types: Vec<_> = records.iter().map(|record| record["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["OwnerTookOver", "TaskCreated", "LeaseGranted", "TaskCompleted"]);
    assert_eq!(records[1]["payload"], json!({"to": "you", "n": 1.50}));
    assert_eq!((&records[1]["taskId"], &records[1]["queue"]), (&json!(id), &json!("mail")));
    assert_eq!((&records[2]["workerId"], &records[2]["attempt"]), (&json!("w1"), &json!(1)));
    assert_eq!((&records[3]["result"], &records[3]["prev"]), (&json!("sent"), &json!(3)));
    assert_eq!(records[3]["fencingToken"], lease["fencingToken"]);

    // The state as it was between the grant and the completion, and at the end.
    let leased = log(&data, &["state", "--at", "3", "--task", &id, "--json"]).ok().json();
    assert_eq!((&leased["task"]["state"], &leased["position"]), (&json!("LEASED"), &json!(3)));
    let now = log(&data, &["state", "--json"]).ok().json();
    assert_eq!((&now["tasks"], &now["queues"][0]["counts"]["completed"]), (&json!(1), &json!(1)));
    let empty = log(&data, &["state", "--at", "1970-01-01T00:00:00Z", "--json"]).ok().json();
    assert_eq!((&empty["tasks"], &empty["at"]), (&json!(0), &Value::Null));
    let text = log(&data, &["state", "--task", &id]).ok();
    assert!(text.stdout.contains("COMPLETED") && text.stdout.contains("attempt"), "{text:?}");
    assert!(log(&data, &["state"]).ok().stdout.contains("After position 4"));
    log(&data, &["state", "--at", "5"]).fails(1, &["ends at position 4"]);
    log(&data, &["state", "--at", "1", "--task", &id]).fails(1, &[&id, "explain"]);
    assert!(content(&data.join("ledger")) == before, "nothing was changed");
}

#[test]
fn a_dump_is_filtered_by_task_queue_type_and_moment() {
    let server = Server::start();
    let first = submit(&server, "a", json!(1));
    let second = submit(&server, "b", json!(2));
    server.complete(&server.lease("b"), json!(null));
    let dump = |arguments: &[&str]| lines(&log(&server.data(), &[&["dump"], arguments].concat()).ok());
    let positions = |arguments: &[&str]| -> Vec<u64> {
        dump(arguments).iter().map(|record| record["position"].as_u64().unwrap()).collect()
    };
    assert_eq!(positions(&[]), [1, 2, 3, 4, 5]);
    assert_eq!(positions(&["--task", &first]), [2]);
    assert_eq!(positions(&["--task", &second, "--type", "leasegranted"]), [4]);
    assert_eq!(positions(&["--queue", "b"]), [3, 4, 5]);
    assert_eq!(positions(&["--queue", "b", "--from", "4"]), [4, 5]);
    assert_eq!(positions(&["--from", "2", "--to", "3"]), [2, 3]);
    assert_eq!(positions(&["--limit", "2"]), [1, 2]);
    let at = dump(&["--from", "4", "--limit", "1"])[0]["at"].as_str().unwrap().to_owned();
    assert!(positions(&["--from", &at]).contains(&4) && positions(&["--to", &at]).contains(&4));
    assert_eq!(positions(&["--from", "2100-01-01T00:00:00Z"]), [0; 0]);
    assert_eq!(positions(&["--from", "1h"]), [1, 2, 3, 4, 5], "an hour ago");
}

#[test]
fn g6_a_task_that_ran_twice_is_explained_in_words_and_as_steps() {
    let server = Server::start();
    let set_lease = |length: &str| {
        let set = lessor(&["queue", "set", "q", "--lease", length]).env("LESSOR_URL", server.url()).output();
        assert!(set.unwrap().status.success());
    };
    set_lease("100ms");
    let id = submit(&server, "q", json!("slow"));
    let poll = |worker: &str| {
        let body = json!({"workerId": worker, "queues": ["q"], "waitMs": 30_000});
        server.post("/v1/leases", body)["leases"][0].clone()
    };
    poll("w-silent");
    set_lease("1m");
    // The second poll waits until the first lease has run out.
    let lease = poll("w1");
    server.complete(&lease, json!(1));

    let ran = log(&server.data(), &["explain", &id]).ok();
    for expected in [
        "submitted to queue q",
        "attempt 1 was given to w-silent after waiting",
        "attempt 1 was lost after",
        "w-silent was not heard of for",
        "attempt 2 was given to w1",
        "attempt 2 was completed by w1",
        "was given to a worker 2 times (1 lost); it was completed.",
    ] {
        assert!(ran.stdout.contains(expected), "{expected:?} is missing: {ran:?}");
    }
    let timeline = log(&server.data(), &["explain", &id, "--json"]).ok().json();
    let steps: Vec<_> =
        timeline["steps"].as_array().unwrap().iter().map(|step| step["what"].as_str().unwrap()).collect();
    assert_eq!(steps, ["SUBMITTED", "LEASED", "LOST", "LEASED", "COMPLETED"]);
    assert_eq!((&timeline["state"], &timeline["attempts"]), (&json!("COMPLETED"), &json!(2)));
    assert_eq!(
        (&timeline["steps"][2]["cause"], &timeline["steps"][2]["workerId"]),
        (&json!("SILENCE"), &json!("w-silent"))
    );
    assert!(timeline["steps"][2]["silentMs"].as_u64().unwrap() >= 100);
    let stranger = "019a8a3c-5b1e-7000-8000-0000000000aa";
    log(&server.data(), &["explain", stranger]).fails(1, &[stranger, "no record"]);
}

#[test]
fn d9_every_flipped_bit_of_a_copy_is_named_by_its_place() {
    let server = Server::start();
    for n in 0..5 {
        submit(&server, "q", json!(n));
    }
    let dir = copy(&server.data());
    log(dir.path(), &["verify"]).ok();
    let path = segment(dir.path());
    let name = path.file_name().unwrap().to_str().unwrap();
    // One frame of one sector for each: the first holds the owner, the second and the fourth hold tasks.
    flip(&path, 2 * 512 + 100);
    flip(&path, 4 * 512 + 100);
    let ran = log(dir.path(), &["verify"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.stdout.contains("DAMAGED in 2 places"), "{ran:?}");
    for place in [format!("{name} at byte 1024"), format!("{name} at byte 2048")] {
        assert!(ran.stderr.contains(&place), "{place:?} is missing: {ran:?}");
    }
    assert!(ran.stderr.contains("positions at risk: 2 to 2"), "{ran:?}");
    let report = log(dir.path(), &["verify", "--json"]);
    assert_eq!((report.code, &report.json()["ok"]), (3, &json!(false)));
    let damages = report.json()["damages"].as_array().unwrap().clone();
    assert_eq!(damages.len(), 2);
    assert_eq!(
        (&damages[0]["offset"], &damages[0]["from"], &damages[1]["to"]),
        (&json!(1024), &json!(2), &json!(4))
    );

    let dump = log(dir.path(), &["dump"]);
    assert_eq!((dump.code, lines(&dump).len()), (3, 1), "what stands before the damage is printed: {dump:?}");
    assert!(dump.stderr.contains("byte 1024") && dump.stderr.contains("verify"), "{dump:?}");
    assert_eq!(log(dir.path(), &["state"]).code, 3);
    assert_eq!(log(&server.data(), &["verify"]).ok().code, 0, "the original is sound");
}

#[test]
fn d7_a_last_batch_that_was_cut_off_is_no_damage() {
    let mut server = Server::start();
    submit(&server, "q", json!("x".repeat(2_000)));
    server.kill();
    let dir = copy(&server.data());
    // The batch with the task spans several sectors; its last one never arrived.
    let file = fs::OpenOptions::new().write(true).open(segment(dir.path())).unwrap();
    file.write_all_at(&[0; 512], 5 * 512).unwrap();
    let report = log(dir.path(), &["verify", "--json"]).ok().json();
    assert_eq!((&report["records"], &report["unfinished"]["position"]), (&json!(1), &json!(2)));
    assert_eq!(report["unfinished"]["offset"], 1024);
    assert!(log(dir.path(), &["verify"]).ok().stdout.contains("never acknowledged"));
    log(dir.path(), &["dump"]).ok();
}

#[test]
fn d26_what_holds_no_ledger_is_told_apart_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), &["verify"]).fails(3, &["holds no ledger", "--data"]);
    log(&dir.path().join("nowhere"), &["state"]).fails(3, &["holds no ledger"]);
    fs::write(dir.path().join("thesis.txt"), "mine").unwrap();
    log(dir.path(), &["verify"]).fails(3, &["thesis.txt", "not a ledger's"]);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn nonsense_is_refused_with_an_example() {
    let dir = tempfile::tempdir().unwrap();
    log(dir.path(), &["state", "--at", "yesterday"]).fails(2, &["2030-01-31T12:00:00Z"]);
    log(dir.path(), &["explain", "7"]).fails(2, &["019a8a3c"]);
    log(dir.path(), &["dump", "--type", "TaskBorn"]).fails(2, &["TaskCreated"]);
    let help = Ran::from(lessor(&["log", "--help"]).output().unwrap()).ok();
    assert!(help.stdout.contains("Examples:") && help.stdout.contains("Exit codes"), "{help:?}");
}
