//! Bazel builds locally and only keeps what it built in the cache, over gRPC and over HTTP.

use crate::bazel::Bazel;
use crate::support::Server;
use crate::workspace::Workspace;

const LIBRARIES: usize = 4;

#[test]
fn bazel_caches_over_grpc_and_over_http() {
    let server = Server::start();
    let bazel = Bazel::new(&Workspace::cpp(LIBRARIES));
    for scheme in ["grpc", "http"] {
        let cache = format!("--remote_cache={scheme}://{}", server.address());
        let flags = [cache.as_str(), "--spawn_strategy=local"];
        bazel.clean();
        let first = bazel.test(&flags);
        let actions = first.all("local");
        assert!(actions > LIBRARIES, "{scheme}: {first:?}");
        bazel.clean();
        assert_eq!(bazel.test(&flags).all("remote cache hit"), actions, "{scheme}");
    }
}
