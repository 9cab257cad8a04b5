//! Bazel builds locally and only keeps what it built in the cache, over gRPC and over HTTP.

use crate::bazel::Bazel;
use crate::support::Server;
use crate::support::certificates::Authority;
use crate::workspace::Workspace;
use crate::{client, succeeded};

const LIBRARIES: usize = 4;
/// Of a file with public certificates.
const PASSWORD: &str = "changeit";

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

/// Over HTTP, where Bazel trusts what its Java virtual machine trusts.
#[test]
fn x21_bazel_caches_through_tls() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new("ours");
    let files = ca.issue(dir.path(), "server");
    let (ca, trusted) = (ca.write(dir.path(), "ca.pem"), dir.path().join("trusted.p12"));
    let import = ["-importcert", "-noprompt", "-alias", "ca", "-storepass", PASSWORD, "-file"];
    let mut keytool = client("keytool", dir.path());
    succeeded(&keytool.args(import).arg(ca).arg("-keystore").arg(&trusted).output().unwrap());
    let [certificate, key] = [&files.certificate, &files.key].map(|path| path.to_str().unwrap());
    let server = Server::start_with(&["--tls-certificate", certificate, "--tls-key", key]);
    let bazel = Bazel::new(&Workspace::cpp(LIBRARIES)).with_startup_options([
        format!("--host_jvm_args=-Djavax.net.ssl.trustStore={}", trusted.display()),
        format!("--host_jvm_args=-Djavax.net.ssl.trustStorePassword={PASSWORD}"),
    ]);
    let cache = format!("--remote_cache={}", server.url());
    let flags = [cache.as_str(), "--spawn_strategy=local"];
    let actions = bazel.test(&flags).all("local");
    bazel.clean();
    assert_eq!(bazel.test(&flags).all("remote cache hit"), actions);
}
