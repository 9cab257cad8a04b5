//! The committed stubs are what the compiler makes of `proto/`, the limits of requests cover every repeated field, and
//! the fields of remote execution are those of its crate.

use std::collections::BTreeMap;
use std::path::Path;

#[path = "../../examples/generate.rs"]
#[allow(dead_code)]
mod generate;
mod reapi_types;
mod request_limits;

const UPDATE: &str = "run: cargo run --package wire --features grpc --example generate";

#[test]
fn the_committed_stubs_are_those_of_the_proto_files() {
    let fresh = tempfile::tempdir().unwrap();
    generate::generate(fresh.path()).unwrap();
    compare(fresh.path(), &Path::new(env!("CARGO_MANIFEST_DIR")).join("generated"));
}

#[test]
fn the_committed_stubs_of_the_plans_worker_are_those_of_the_plans_text() {
    let fresh = tempfile::tempdir().unwrap();
    generate::generate_plan_worker(fresh.path()).unwrap();
    compare(fresh.path(), &Path::new(generate::PLAN_WORKER).join("generated"));
}

fn compare(fresh: &Path, committed: &Path) {
    let (fresh, committed) = (contents(fresh), contents(committed));
    assert!(fresh.keys().eq(committed.keys()), "{UPDATE}");
    for (name, content) in &fresh {
        assert!(committed[name] == *content, "{name} differs; {UPDATE}");
    }
}

fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = directory.read_dir().unwrap().map(Result::unwrap);
    files.map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())).collect()
}
