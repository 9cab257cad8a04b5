//! The audit trail with the real binary: written by a server, read and verified by `lessor audit`.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::api_keys::{init, key, printed, status};
use crate::support::{Ran, Server, lessor};

fn audit(data: &Path, arguments: &[&str]) -> Ran {
    Ran::from(lessor(&["audit", "--data"]).arg(data).args(arguments).output().unwrap())
}

fn only_file(data: &Path) -> PathBuf {
    let mut files = fs::read_dir(data.join("audit")).unwrap().map(|entry| entry.unwrap().path());
    let file = files.next().unwrap();
    assert_eq!(files.next(), None);
    file
}

fn stop(server: &mut Server) {
    server.signal(Signal::TERM);
    assert_eq!(server.ended().code(), Some(0));
}

#[test]
fn x23_the_audit_trail_is_filtered_and_a_change_to_it_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let admin = printed(&init(&dir.path().join("data"), &[]));
    let arguments = ["--auth", "keys", "--no-worker"];
    let mut server = Server::start_in(dir, "127.0.0.1:0", &arguments);
    let data = server.data();
    let options = ["create", "--name", "ci", "--tenant", "default", "--role", "reader"];
    let ci = printed(&key(&server, &admin, &options));
    assert_eq!(status(&server, &ci, "/v1/keys"), 403);
    assert_eq!(status(&server, "nonsense", "/v1/tasks"), 401);
    audit(&data, &["--verify"]).ok();
    stop(&mut server);

    let all = audit(&data, &[]).ok().stdout;
    assert_eq!(all.lines().count(), 5, "opened, created, denied twice, closed: {all}");
    let ours = audit(&data, &["--who", "ci", "--denied", "--call", "GET /v1/keys", "--json"]).ok().json();
    assert_eq!((&ours["reason"], &ours["kind"]), (&"forbidden".into(), &"key".into()));
    assert_eq!(ours["id"], ci.split('_').nth(1).unwrap());
    assert_eq!(audit(&data, &["--who", "nobody"]).ok().stdout, "");
    assert_eq!(audit(&data, &["--until", "1h"]).ok().stdout, "");
    assert!(!all.contains(ci.rsplit('_').next().unwrap()), "no line has a secret");

    // The next start records what it found.
    let mut server = server.start_again(|dir| {
        let mut command = lessor(&["up", "--segment-mib", "32", "--preallocate-mib", "1", "--data"]);
        command.arg(dir.join("data")).args(["--listen", "127.0.0.1:0"]).args(arguments);
        command
    });
    stop(&mut server);
    let data = server.data();
    let sound: Value = audit(&data, &["--verify", "--json"]).ok().json();
    assert_eq!(
        (&sound["ok"], &sound["lines"], &sound["knownToLedger"]),
        (&true.into(), &5.into(), &1.into())
    );
    let file = only_file(&data);
    let whole = fs::read_to_string(&file).unwrap();
    let cut: String = whole.split_inclusive('\n').take(3).collect();
    for (text, expected) in [
        (whole.replacen("\"who\":\"ci\"", "\"who\":\"me\"", 1), "was changed"),
        (cut, "which the ledger knows"),
    ] {
        fs::write(&file, text).unwrap();
        let found = audit(&data, &["--verify"]);
        assert!(found.code == 3 && found.stderr.contains(expected), "{found:?}");
    }
}
