//! Bazel builds and tests where the coordinator's workers are.

use crate::bazel::Bazel;
use crate::ledger::History;
use crate::support::Server;
use crate::workspace::Workspace;

/// Enough for more than fifty actions.
const LIBRARIES: usize = 20;
/// The exit code of Bazel if a test fails.
const TESTS_FAILED: i32 = 3;

/// With `lessor up` and no other set-up.
#[test]
fn bazel_builds_remotely_and_then_everything_is_a_remote_cache_hit() {
    let server = Server::start();
    let bazel = Bazel::new(&Workspace::cpp(LIBRARIES));
    let executor = format!("--remote_executor=grpc://{}", server.address());
    let flags = [executor.as_str(), "--spawn_strategy=remote", "--jobs=8"];
    let actions = bazel.test(&flags).all("remote");
    assert!(actions >= 50, "only {actions} actions");
    let committed = History::of(&server.data()).committed_once();
    assert_eq!(committed.len(), actions, "each action is one committed task");
    bazel.clean();
    assert_eq!(bazel.test(&flags).all("remote cache hit"), actions);
    assert_eq!(History::of(&server.data()).committed_once(), committed, "a cache hit needs no task");
}

#[test]
fn bazel_shows_what_a_test_printed_that_ran_out_of_time() {
    let server = Server::start();
    let mut workspace = Workspace::default();
    workspace.test("slow_test", "echo printed before the end; echo an error >&2; sleep 600", &[]);
    let bazel = Bazel::new(&workspace);
    let executor = format!("--remote_executor=grpc://{}", server.address());
    let flags = [executor.as_str(), "--spawn_strategy=remote", "--test_timeout=5", "--test_output=all"];
    let (exit_code, text) = bazel.failing_test(&flags);
    assert_eq!(exit_code, Some(TESTS_FAILED), "{text}");
    for expected in ["TIMEOUT", "\nprinted before the end\n", "\nan error\n"] {
        assert!(text.contains(expected), "{expected:?} is not in\n{text}");
    }
    let history = History::of(&server.data());
    assert_eq!(history.count("LeaseGranted") - history.count("TaskCompleted"), 1, "it ran once\n{text}");
}

/// A client repeats what is not its action's fault.
#[test]
fn bazel_runs_a_test_once_that_prints_more_than_it_may() {
    let server = Server::start();
    let mut workspace = Workspace::default();
    workspace.test("loud_test", "head -c 200000000 /dev/zero", &[]);
    let bazel = Bazel::new(&workspace);
    let executor = format!("--remote_executor=grpc://{}", server.address());
    let flags = [executor.as_str(), "--spawn_strategy=remote", "--test_output=errors"];
    let (exit_code, text) = bazel.failing_test(&flags);
    assert_eq!(exit_code, Some(TESTS_FAILED), "{text}");
    let grants = History::of(&server.data()).count("LeaseGranted");
    assert_eq!(grants, History::of(&server.data()).committed_once().len(), "each ran once");
}
