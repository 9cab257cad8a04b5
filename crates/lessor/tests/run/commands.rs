//! The command itself: its output, its exit code, its environment, its time, and what is known of it afterwards.

use serde_json::Value;

use crate::run;
use crate::support::Server;

#[test]
fn the_output_and_the_exit_code_are_the_commands_own() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let ran = run(&server, dir.path(), &["-q"], "printf 'out\\0put'; echo oops >&2; exit 7");
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (7, "out\0put", "oops\n"));
    let killed = run(&server, dir.path(), &["-q"], "kill -9 $$");
    assert_eq!(killed.code, 137, "{killed:?}");
    let unknown = server.run(&["run", "--", "no-such-program"]);
    assert_eq!(unknown.code, 127);
    assert!(unknown.stderr.contains("no-such-program"), "{unknown:?}");
}

#[test]
fn a_second_run_says_cached_and_a_failure_or_no_cache_runs_again() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let script = "echo $RANDOM$RANDOM$RANDOM";
    let first = run(&server, dir.path(), &[], script).ok();
    assert!(!first.stderr.contains("cached") && first.stderr.contains("exit code 0"), "{first:?}");
    let second = run(&server, dir.path(), &[], script).ok();
    assert_eq!(second.stdout, first.stdout);
    assert!(second.stderr.contains("cached: exit code 0") && second.stderr.contains("ms"), "{second:?}");
    let fresh = run(&server, dir.path(), &["--no-cache"], script).ok();
    assert_ne!(fresh.stdout, first.stdout);
    let other = run(&server, dir.path(), &["--env", "A=1"], script).ok();
    assert_ne!(other.stdout, first.stdout, "another environment is another command");
    let failing = "echo $RANDOM$RANDOM$RANDOM; exit 1";
    let tries: Vec<_> = (0..2).map(|_| run(&server, dir.path(), &[], failing)).collect();
    assert_ne!(tries[0].stdout, tries[1].stdout, "a failure is not remembered");
}

#[test]
fn large_output_comes_whole() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let ran = run(&server, dir.path(), &["-q"], "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo err >&2");
    assert_eq!(ran.stdout.len(), 3_000_001);
    assert!(ran.stdout.bytes().take(3_000_000).all(|byte| byte == b'x'));
    assert_eq!(ran.stderr, "err\n");
}

#[test]
fn the_environment_is_what_was_given_and_the_last_of_a_name_wins() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let options = ["-q", "--env", "A=1", "--env", "B=x=y z", "--env", "A=2"];
    let ran = run(&server, dir.path(), &options, "echo \"$A $B\"; env | grep -c LESSOR_URL");
    assert_eq!(ran.stdout, "2 x=y z\n0\n");
}

#[test]
fn a_command_that_runs_too_long_is_ended_with_a_code_of_its_own() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let ran = run(&server, dir.path(), &["--timeout", "2s"], "echo so far; while :; do :; done");
    assert_eq!((ran.code, &*ran.stdout), (124, "so far\n"));
    assert!(ran.stderr.contains("longer than it may, 2s"), "{}", ran.stderr);
}

#[test]
fn json_tells_everything_in_one_object_and_nothing_of_the_output() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let options = ["--json", "--output", "made", "--output", "not-made", "--output", "dir"];
    let script = "echo hello; echo err >&2; echo x > made; mkdir dir; exit 3";
    let ran = run(&server, dir.path(), &options, script);
    assert_eq!(ran.code, 3);
    let summary = ran.json();
    assert_eq!((&summary["exitCode"], &summary["cached"]), (&Value::from(3), &Value::from(false)));
    assert!(summary["operation"].as_str().unwrap().contains("operations/"), "{summary}");
    // The SHA-256 of `hello` and a line feed.
    let hello = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03/6";
    assert_eq!(summary["stdoutDigest"], hello);
    assert!(summary["stderrDigest"].as_str().unwrap().ends_with("/4"));
    for key in ["actionDigest", "commandDigest", "inputRootDigest", "worker"] {
        assert!(!summary[key].as_str().unwrap().is_empty(), "{key}: {summary}");
    }
    assert_eq!(summary["outputs"][0]["path"], "made");
    assert_eq!(
        (&summary["outputs"][1]["path"], &summary["outputs"][1]["kind"]),
        (&"dir".into(), &"directory".into())
    );
    assert_eq!(summary["missingOutputs"], serde_json::json!(["not-made"]));
    assert!(
        summary["timings"]["totalMs"].is_u64() && summary["uploadedBlobs"].as_u64() >= Some(2),
        "{summary}"
    );
    assert!(ran.stderr.contains("made no not-made") && !ran.stderr.contains("err\n"), "{ran:?}");
}

#[test]
fn a_reader_that_has_gone_is_no_failure() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let mut command = crate::command(&server, dir.path(), &["-q"], "seq 100000; exit 4");
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(4));
}
