//! The isolation of the actions of `lessor up` from the server and its machine. These tests need bubblewrap, which
//! `cargo xtask test` installs.

use crate::run;
use crate::support::gates::Gates;
use crate::support::{Ran, Server, lessor};

/// Looks for the server's key in every directory above the working directory.
const WALK_UP: &str =
    "d=.; for n in 1 2 3 4 5 6 7 8 9 10 11 12; do test -r $d/lease.key && echo $d; d=../$d; done; true";

/// Actions ran below the data directory, as plain processes of the server's user: `cat ../../../../../lease.key` printed the
/// key that seals lease ids.
#[test]
fn an_action_cannot_read_the_servers_key() {
    let (mut server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let key = server.data().join("lease.key");
    assert!(key.is_file());
    let script = format!("cat ../../../../../lease.key; test -e {key:?} && echo {key:?}; {WALK_UP}");
    let ran = run(&server, dir.path(), &[], &script).ok();
    assert_eq!(ran.stdout, "", "{ran:?}");
    let line = server.banner_line("Actions run");
    for part in ["in a sandbox", "bubblewrap works here", "no network", "--allow-network", "--backend host"] {
        assert!(line.contains(part), "{part:?} is missing: {line}");
    }
}

#[test]
fn a_plain_process_is_not_below_the_servers_key_either() {
    let (mut server, dir) = (Server::start_with(&["--backend", "host"]), tempfile::tempdir().unwrap());
    let ran = run(&server, dir.path(), &[], WALK_UP).ok();
    assert_eq!(ran.stdout, "", "{ran:?}");
    let line = server.banner_line("Actions run");
    assert!(line.contains("plain processes") && line.contains("--backend host says"), "{line}");
}

#[test]
fn without_bubblewrap_actions_run_as_plain_processes_and_the_banner_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = lessor(&["up", "--segment-mib", "32", "--listen", "127.0.0.1:0", "--data"]);
    // The shell of the check is found by its path.
    command.arg(dir.path().join("data")).env("PATH", dir.path());
    let mut server = Server::start_by(command, dir);
    let line = server.banner_line("Actions run");
    for part in ["plain processes", "backend host", "bwrap is not installed"] {
        assert!(line.contains(part), "{part:?} is missing: {line}");
    }
    server.run(&["run", "--", "/bin/true"]).ok();
}

#[test]
fn a_sandbox_that_was_asked_for_and_does_not_work_ends_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = lessor(&["up", "--backend", "sandbox", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(dir.path().join("data")).env("PATH", dir.path()).env("XDG_CACHE_HOME", dir.path());
    let ran = Ran::from(command.output().unwrap());
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.stderr.contains("bwrap is not installed"), "{ran:?}");
}

#[test]
fn an_action_uses_the_network_only_where_it_is_allowed_and_asked_for() {
    let (gates, dir) = (Gates::open(), tempfile::tempdir().unwrap());
    let server = Server::start_with(&["--allow-network"]);
    let script = gates.script(0);
    let refused = run(&server, dir.path(), &[], &script);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(gates.is_quiet(), "no action came through");
    let mut asking = crate::command(&server, dir.path(), &["--platform", "network=host"], &script);
    let mut child =
        asking.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    gates.next(&mut child).expect("it has the network").let_through();
    assert!(child.wait().unwrap().success());
}
