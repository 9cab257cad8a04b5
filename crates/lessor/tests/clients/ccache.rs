//! ccache, with nothing but the HTTP cache to keep objects in.

use std::fs;
use std::path::Path;

use crate::support::Server;
use crate::support::documented::CCACHE_LAYOUT;
use crate::{client, succeeded};

#[test]
fn ccache_finds_remotely_what_another_machine_compiled() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a.cc"), "int answer() { return 42; }\n").unwrap();
    // A directory of its own for each compile, as two machines have.
    let storage = format!("{}/cache", server.url());
    let first = compile(&storage, dir.path(), "first");
    assert_eq!((first.stat("remote_storage_hit"), first.stat("cache_miss")), (0, 1));
    let second = compile(&storage, dir.path(), "second");
    assert_eq!((second.stat("direct_cache_hit"), second.stat("cache_miss")), (1, 0));
    assert!(second.stat("remote_storage_hit") > 0, "{}", second.stats);
    assert_eq!(first.object, second.object);
}

pub(crate) struct Compiled {
    object: Vec<u8>,
    pub stats: String,
}

impl Compiled {
    #[track_caller]
    pub(crate) fn stat(&self, name: &str) -> u64 {
        let value = self.stats.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or_else(|| panic!("ccache does not count {name}:\n{}", self.stats))
    }
}

/// Compiles `a.cc` on a machine whose only cache is at this URL.
pub(crate) fn compile(storage: &str, dir: &Path, own: &str) -> Compiled {
    let ccache = |arguments: &[&str]| {
        let mut command = client("ccache", dir);
        command.current_dir(dir).env("CCACHE_DIR", dir.join(own)).env("CCACHE_REMOTE_ONLY", "1");
        command.env("CCACHE_REMOTE_STORAGE", format!("{storage}{CCACHE_LAYOUT}"));
        succeeded(&command.args(arguments).output().unwrap())
    };
    ccache(&["g++", "-c", "a.cc", "-o", "a.o"]);
    let object = fs::read(dir.join("a.o")).unwrap();
    fs::remove_file(dir.join("a.o")).unwrap();
    Compiled { object, stats: ccache(&["--print-stats"]) }
}
