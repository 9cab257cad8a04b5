//! moon, whose outputs are kept in the cache: over gRPC with zstd, and over HTTP.
//!
//! It comes from npm, by name and version, into the target directory, once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::Server;
use crate::{client, succeeded};

const PACKAGE: &str = "@moonrepo/core-linux-x64-gnu";
const VERSION: &str = "2.5.5";

#[test]
fn moon_gets_its_outputs_from_the_cache_over_grpc_with_zstd_and_over_http() {
    // moon translates its plugins once for each home, which takes longer than all else here.
    let home = tempfile::tempdir().unwrap();
    second_run_is_cached("grpc", "cache:\n    compression: 'zstd'", home.path());
    second_run_is_cached("http", "api: 'http'", home.path());
}

fn second_run_is_cached(scheme: &str, more: &str, home: &Path) {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let workspace = dir.path();
    write_workspace(workspace, &server, scheme, more);
    let run = || {
        let mut command = client(program().to_str().unwrap(), home);
        let text = succeeded(&command.args(["run", "app:build"]).current_dir(workspace).output().unwrap());
        // It warns, and goes on without, when the server does not offer what moon is configured to use.
        assert!(!text.contains("WARN"), "{text}");
        text
    };
    let outputs = ["small.txt", "large.txt"].map(|name| workspace.join("app").join(name));
    let first = run();
    assert!(!first.contains("cached"), "{first}");
    let built = outputs.each_ref().map(|path| fs::read(path).unwrap());
    outputs.iter().for_each(|path| fs::remove_file(path).unwrap());
    fs::remove_dir_all(workspace.join(".moon/cache")).unwrap();
    let second = run();
    assert!(second.contains("cached from remote"), "{second}");
    assert_eq!(outputs.each_ref().map(|path| fs::read(path).unwrap()), built);
}

/// A repository with one task, whose larger output is too large for a batch of blobs.
fn write_workspace(dir: &Path, server: &Server, scheme: &str, more: &str) {
    fs::create_dir_all(dir.join(".moon")).unwrap();
    fs::create_dir_all(dir.join("app")).unwrap();
    let remote = format!("remote:\n  host: '{scheme}://{}'\n  {more}\n", server.address());
    let settings = format!("projects:\n  app: 'app'\ntelemetry: false\n{remote}");
    fs::write(dir.join(".moon/workspace.yml"), settings).unwrap();
    let task = "tasks:\n  build:\n    command: 'sh build.sh'\n    inputs: ['build.sh']\n    outputs: ['small.txt', 'large.txt']\n";
    fs::write(dir.join("app/moon.yml"), task).unwrap();
    fs::write(dir.join("app/build.sh"), "echo small > small.txt\nseq 1000000 > large.txt\n").unwrap();
    for arguments in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "--message", "all"]] {
        let identity = ["-c", "user.name=test", "-c", "user.email=test@example.com"];
        let mut git = client("git", dir);
        succeeded(&git.args(identity).args(arguments).current_dir(dir).output().unwrap());
    }
}

/// Where moon is, after it was installed if need be. It appears whole or not at all, also when two runs install it.
fn program() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let installed = target.join(format!("moon-{VERSION}"));
    let program = installed.join("node_modules").join(PACKAGE).join("moon");
    if !program.exists() {
        let fresh = tempfile::tempdir_in(target).unwrap();
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--fetch-retries", "5", "--prefix"])
            .arg(fresh.path());
        succeeded(&npm.arg(format!("{PACKAGE}@{VERSION}")).current_dir(fresh.path()).output().unwrap());
        // The one that comes second finds the place taken, by the same.
        let _ = fs::rename(fresh.path(), &installed);
        assert!(program.exists(), "npm installed no {}", program.display());
    }
    program
}
