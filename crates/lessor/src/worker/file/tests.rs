//! Tests of a worker's configuration file: what is accepted, and the messages for what is not.

use super::*;
use crate::config::file::parse;

/// The worker configuration of the remote execution plan, word for word in its keys.
const DOCUMENT: &str = r#"
[worker]
worker_id = "worker-host-01"
server_url = "http://server.example.com:8980"
cas_url = "http://cas.example.com:8980"
max_concurrent_tasks = 7
heartbeat_interval_seconds = 20
backend = "host"

[worker.platform]
OSFamily = "Linux"
Arch = "x86_64"
container = "none"

[worker.host]
work_dir = "/var/lib/example/worker"
use_sandbox = false
env_whitelist = ["PATH", "HOME", "LANG"]

[worker.docker]
image = "ubuntu:22.04"
network_mode = "bridge"
cpu_limit = 2.0
memory_limit = 4294967296
"#;

fn read(text: &str) -> Worker {
    parse::<WorkerFile>(text).unwrap().worker
}

fn faults(text: &str) -> String {
    parse::<WorkerFile>(text).unwrap_err().join("\n")
}

#[test]
fn s3_67_the_worker_has_the_documents_keys_and_defaults() {
    let worker = read(DOCUMENT);
    assert_eq!(worker.worker_id.as_deref(), Some("worker-host-01"));
    assert_eq!(worker.server_url, "http://server.example.com:8980");
    assert_eq!(worker.cas_url.as_deref(), Some("http://cas.example.com:8980"));
    assert_eq!((worker.max_concurrent_tasks, worker.heartbeat_interval_seconds), (7, 20));
    assert_eq!(worker.backend(), Ok(Backend::Host));
    let default = read("");
    assert_eq!((default.max_concurrent_tasks, default.heartbeat_interval_seconds), (4, 30));
    assert_eq!((default.worker_id.clone(), default.backend()), (None, Ok(Backend::Host)));
    assert_eq!((default.queues.as_slice(), default.drain_timeout_seconds), (&["exec".to_owned()][..], 300));
    assert!(faults("[worker]\nbackend = \"vm\"").contains("worker.backend"));
}

#[test]
fn s3_68_the_platform_is_a_free_map() {
    let platform = read(DOCUMENT).platform;
    assert_eq!((platform["OSFamily"].as_str(), platform["container"].as_str()), ("Linux", "none"));
    assert_eq!(platform.len(), 3);
}

#[test]
fn s3_69_the_host_backend_has_a_directory_an_environment_and_a_sandbox() {
    let host = read(DOCUMENT).host;
    assert_eq!(host.work_dir, PathBuf::from("/var/lib/example/worker"));
    assert_eq!(host.env_whitelist, ["PATH", "HOME", "LANG"]);
    assert_eq!(read("").host.env_whitelist, ["PATH", "HOME"]);
    let sandboxed = read("[worker.host]\nuse_sandbox = true");
    assert_eq!(sandboxed.backend(), Ok(Backend::Sandbox));
    let text = "[worker]\nbackend = \"docker\"\n[worker.host]\nuse_sandbox = true";
    assert!(faults(text).contains("use_sandbox"));
}

#[test]
fn s3_70_containers_have_an_image_a_network_and_limits() {
    let docker = read(DOCUMENT).docker;
    assert_eq!((docker.image.as_deref(), docker.network_mode.as_str()), (Some("ubuntu:22.04"), "bridge"));
    assert_eq!((docker.cpu_limit, docker.memory_limit), (Some(2.0), Some(4_294_967_296)));
    assert_eq!(read("").docker.network_mode, "none");
    let limited = read("[worker.docker]\nulimits = [\"nofile=1024:4096\", \"core=0\"]").docker;
    let read = [("nofile".to_owned(), 1_024, 4_096), ("core".to_owned(), 0, 0)];
    assert_eq!(limited.parse_ulimits().unwrap(), read);
    assert!(faults("[worker.docker]\nulimits = [\"nofile\"]").contains("NAME=SOFT:HARD"));
}

#[test]
fn an_unknown_key_is_refused_and_the_nearest_known_one_is_named() {
    let told = faults("[worker]\nmax_concurent_tasks = 4");
    assert!(told.contains("line 2: unknown key worker.max_concurent_tasks"), "{told}");
    assert!(told.contains("did you mean worker.max_concurrent_tasks?"), "{told}");
    let told = faults("[worker.host]\nnetwork_mode = \"none\"");
    assert!(told.contains("did you mean worker.docker.network_mode?"), "{told}");
}

#[test]
fn p14_a_value_of_the_wrong_kind_or_size_is_named() {
    for (text, words) in [
        ("[worker]\nmax_concurrent_tasks = 0", "worker.max_concurrent_tasks must be between 1 and 500"),
        ("[worker]\nheartbeat_interval_seconds = 0", "heartbeat_interval_seconds must be between"),
        ("[worker]\nserver_url = \"ftp://host\"", "worker.server_url: \"ftp://host\" is no address"),
        ("[worker]\nserver_url = \"ftp://host\"", "ftp is not supported, only http"),
        ("[worker]\nserver_url = \"x y\"", "worker.server_url"),
        ("[worker]\ncas_url = \"unix://host\"", "worker.cas_url"),
        ("[worker]\nclient_key = \"k\"", "worker.client_certificate and worker.client_key belong together"),
        ("[worker.host]\nwork_dir = \"\"", "worker.host.work_dir is empty"),
        ("[worker]\nqueues = []", "names no queue"),
        ("[worker]\nqueues = [\"a\\tb\"]", "worker.queues"),
        ("[worker]\ninstance_name = \"a\\tb\"", "worker.instance_name"),
        ("[worker.docker]\ncpu_limit = -1.0", "worker.docker.cpu_limit must be more than 0"),
        ("[worker.limits]\nmemory_bytes = 0", "worker.limits.memory_bytes must be at least 1"),
        ("[worker.resources]\ncpu_cores = 0.0", "worker.resources.cpu_cores"),
        ("[worker.platform]\nOSFamily = 5", "line 2"),
    ] {
        assert!(faults(text).contains(words), "{text}: {}", faults(text));
    }
}

#[test]
fn what_is_shown_is_read_back_as_the_same() {
    for file in [WorkerFile::default(), WorkerFile::with_every_key(), parse(DOCUMENT).unwrap()] {
        assert_eq!(toml::from_str::<WorkerFile>(&toml::to_string(&file).unwrap()).unwrap(), file);
    }
}
