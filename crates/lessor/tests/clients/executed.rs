//! Bazel builds and tests where the coordinator's workers are.

use crate::bazel::Bazel;
use crate::ledger::History;
use crate::support::Server;
use crate::workspace::Workspace;

/// Enough for more than fifty actions.
const LIBRARIES: usize = 20;

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
