//! The process is stopped in a hurry, killed for want of memory, or made to log what a stranger wrote.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::Server;

/// The first signal lets open requests end; this one never would within the time that it has.
#[test]
fn p6_a_second_sigterm_stops_at_once_and_loses_nothing() {
    let mut server = Server::start_with(&["--no-worker"]);
    let task = server.post("/v1/tasks", json!({"queue": "q", "payload": "acknowledged"}));
    let mut stuck = TcpStream::connect(server.address()).unwrap();
    let head =
        "POST /v1/tasks HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 100\r\n\r\n";
    stuck.write_all(head.as_bytes()).unwrap();
    let mut begun = String::new();
    BufReader::new(&stuck).read_line(&mut begun).unwrap();
    assert_eq!(begun, "HTTP/1.1 100 Continue\r\n");
    server.signal(Signal::TERM);
    server.until_logged("a second signal stops at once");
    server.signal(Signal::TERM);
    let status = server.ended();
    let log = server.log();
    assert!(log.contains("stopping at once"), "{log}");
    assert!(!log.contains("time to drain was over"), "it waited for the request: {log}");
    assert_eq!(status.code(), Some(0), "{log}");
    let server = server.crash_and_restart();
    let path = format!("/v1/tasks/{}", task["taskId"].as_str().unwrap());
    assert_eq!(server.get(&path)["payload"], "acknowledged");
}

/// A control group of this test, with so little memory that the kernel kills what grows in it.
struct SmallGroup(PathBuf);

impl SmallGroup {
    /// In the group of this process, in version 1 or version 2 of control groups.
    fn make(limit_bytes: u64) -> SmallGroup {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap();
        let own = |line: &str, root: &str| {
            let path = line.rsplit(':').next().unwrap().trim_start_matches('/');
            [PathBuf::from(root).join(path), PathBuf::from(root)]
                .into_iter()
                .find(|path| path.is_dir())
                .unwrap()
        };
        let v1 = groups.lines().find(|line| line.split(':').nth(1) == Some("memory"));
        let (parent, file) = match v1 {
            Some(line) => (own(line, "/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
            None => {
                let own = own(groups.lines().find(|line| line.starts_with("0::")).unwrap(), "/sys/fs/cgroup");
                // A group with processes of its own cannot limit its children; one around it can.
                let limits_children = |group: &&Path| {
                    fs::read_to_string(group.join("cgroup.subtree_control"))
                        .is_ok_and(|control| control.contains("memory"))
                };
                (own.ancestors().find(limits_children).unwrap().to_owned(), "memory.max")
            }
        };
        let path = parent.join(format!("lessor-test-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        let group = SmallGroup(path);
        fs::write(group.0.join(file), limit_bytes.to_string()).unwrap();
        // Without swap, so that memory is really exhausted.
        let _ = fs::write(group.0.join("memory.swap.max"), "0");
        let _ = fs::write(group.0.join("memory.swappiness"), "0");
        group
    }
}

impl Drop for SmallGroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The server sized its limits for the whole machine, and then got into a group in which they are far too high.
#[test]
fn p8_a_server_that_the_kernel_kills_for_want_of_memory_has_everything_acknowledged() {
    let group = SmallGroup::make(32 << 20);
    let mut server = Server::start_with(&["--no-worker"]);
    let first = server.post("/v1/tasks", json!({"queue": "q", "payload": 1}));
    fs::write(group.0.join("cgroup.procs"), server.pid().as_raw_nonzero().to_string()).unwrap();
    let payload = "x".repeat(900 << 10);
    let mut acknowledged = vec![first["taskId"].as_str().unwrap().to_owned()];
    loop {
        let answer = server.try_post("/v1/tasks", &json!({"queue": "q", "payload": payload}));
        let Some((_, body)) = answer.split_once("\r\n\r\n").filter(|_| answer.starts_with("HTTP/1.1 201"))
        else {
            break;
        };
        acknowledged
            .push(serde_json::from_str::<Value>(body).unwrap()["taskId"].as_str().unwrap().to_owned());
        assert!(acknowledged.len() < 1_000, "the kernel does not limit the memory of the group");
    }
    let status = server.ended();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{}", server.log());
    drop(group);
    let server = server.crash_and_restart();
    for id in acknowledged {
        assert_eq!(server.get(&format!("/v1/tasks/{id}"))["state"], "WAITING");
    }
}

/// A worker's message with line breaks, terminal sequences and fields of its own is one value of one line.
#[test]
fn x18_what_a_worker_writes_adds_neither_lines_nor_fields_to_the_log() {
    let server = Server::start_with(&["--no-worker"]);
    let forged = r#"{"level":"ERROR","message":"forged"}"#;
    let message = format!("first\n{forged}\r\n\u{1b}[31m\",\"level\":\"FATAL\",\"forged\":\"yes\u{2028}");
    let task = server.post("/v1/tasks", json!({"queue": "q", "payload": 1}));
    server.fail(&server.lease("q"), &message);
    server.post("/v1/tasks", json!({"queue": "q", "payload": 2}));
    let cancelled = server.lease("q");
    let path = format!("/v1/tasks/{}/cancel", cancelled["taskId"].as_str().unwrap());
    server.post(&path, json!({"reason": message}));
    let (_, log) = server.terminate();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let about = |task: &Value, level: &str| {
        let is_meant = |line: &&Value| line["task"] == *task && line["level"] == level;
        lines.iter().filter(is_meant).cloned().collect::<Vec<_>>()
    };
    let failed = about(&task["taskId"], "ERROR");
    assert!(failed.len() == 1 && failed[0].to_string().contains("forged"), "{log}");
    let asked = about(&cancelled["taskId"], "INFO").pop().unwrap();
    assert_eq!(asked["message"], "cancel requested", "{log}");
    assert!(asked.to_string().contains("forged"), "{log}");
    for line in &lines {
        assert!(line["message"] != "forged" && line.get("forged").is_none(), "{line}");
    }
    assert!(!log.contains('\u{1b}'), "no terminal obeys it");
}
