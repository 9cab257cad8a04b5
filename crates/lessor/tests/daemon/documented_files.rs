//! The configuration files of the document, with nothing changed but addresses and directories: S3-62 to S3-69 by their
//! effect.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use tonic::metadata::MetadataValue;
use wire::WORKSPACE_HEADER;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{LeaseTaskRequest, RegisterWorkerRequest};

use crate::scheduler_calls::spawn;
use crate::support::{Server, lessor};
use crate::support_worker::{Worker, until};

const SERVER: &str = r#"
[server]
address = "0.0.0.0:8980"
instance_name = "production"

[storage.cas]
backend = "filesystem"
root_dir = "/var/lib/expbuild/cas"

[storage.action_cache]
backend = "filesystem"
root_dir = "/var/lib/expbuild/cache"

[execution]
backend = "scheduler" # New: use remote Worker scheduler

[execution.scheduler]
lease_duration_seconds = 300 # 5 minutes
heartbeat_timeout_seconds = 120 # 2 minutes
long_poll_timeout_seconds = 30
max_queue_size = 10000

[capabilities]
exec_enabled = true
"#;

const WORKER: &str = r#"
[worker]
worker_id = "worker-host-01" # Auto-generated or manually specified
server_url = "http://server.example.com:8980"
cas_url = "http://server.example.com:8980"
max_concurrent_tasks = 4
heartbeat_interval_seconds = 30
backend = "host"

[worker.platform]
OSFamily = "Linux"
Arch = "x86_64"
container = "none"

[worker.host]
work_dir = "/var/lib/expbuild/worker"
use_sandbox = false
env_whitelist = ["PATH", "HOME"]
"#;

/// Starts a server with this file in its own directory, where its data is too.
fn serve(file: &str) -> Server {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let file = file.replace("0.0.0.0:8980", "127.0.0.1:0").replace("/var/lib/expbuild", &at("expbuild"));
    fs::write(at("expbuild-server.toml"), file).unwrap();
    std::os::unix::fs::symlink(".lessor", at("data")).unwrap();
    let mut command = lessor(&["serve", "--init", "--verbose", "--config", "expbuild-server.toml"]);
    command.current_dir(dir.path());
    Server::start_by(command, dir)
}

fn is_used(directory: &Path) -> bool {
    fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

/// The worker of the document registered for the unnamed instance alone, and so never got an execution of this server.
#[test]
fn s3_62_s3_63_s3_64_s3_68_the_documents_server_and_worker_work_together() {
    let (server, dir) = (serve(SERVER), tempfile::tempdir().unwrap());
    let file = dir.path().join("worker.toml");
    fs::write(&file, WORKER.replace("http://server.example.com:8980", &server.url())).unwrap();
    let worker = Worker::start(dir.path(), &["--config", file.to_str().unwrap()]);
    for instance in ["production", "staging", ""] {
        let flags = ["--json", "--platform", "OSFamily=Linux", "--platform", "Arch=x86_64"];
        let command = ["--", "sh", "-c", "exit 0"];
        let ran = server.run(&[&["run", "--instance", instance], &flags[..], &command].concat()).ok();
        assert_eq!(ran.json()["worker"], "worker-host-01", "{instance:?}: {ran:?}");
    }
    let root = server.data().with_file_name("expbuild");
    assert!(is_used(&root.join("cas")) && is_used(&root.join("cache")), "content is where the file says");
    assert_eq!(worker.terminate(), Some(0));
}

#[test]
fn s3_65_the_scheduler_keeps_the_times_of_the_documents_file() {
    let server = serve(SERVER);
    let mut client = spawn(&server, &["run", "--instance", "production", "--", "true"]);
    let in_production = |name: &str| MetadataValue::try_from(name).unwrap();
    let (welcome, task) = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut scheduler = WorkerSchedulerClient::connect(server.url()).await.unwrap();
        let worker_id = "w".to_owned();
        let mut register =
            tonic::Request::new(RegisterWorkerRequest { worker_id: worker_id.clone(), ..Default::default() });
        register.metadata_mut().insert(WORKSPACE_HEADER, in_production("production"));
        let welcome = scheduler.register_worker(register).await.unwrap().into_inner();
        let ask = LeaseTaskRequest { worker_id, max_tasks: 1, timeout_seconds: 30, ..Default::default() };
        let mut ask = tonic::Request::new(ask);
        ask.metadata_mut().insert(WORKSPACE_HEADER, in_production("production"));
        (welcome, scheduler.lease_task(ask).await.unwrap().into_inner().tasks.pop().expect("a task"))
    });
    client.kill().unwrap();
    client.wait().unwrap();
    assert_eq!(welcome.heartbeat_timeout.unwrap().seconds, 120);
    assert_eq!(welcome.long_poll_timeout.unwrap().seconds, 30);
    let lease_s = task.lease_expires_at.unwrap().seconds - task.granted_at.unwrap().seconds;
    assert!((300..=330).contains(&lease_s), "a lease lasts for 300 s, and up to a tenth more: {lease_s}");
}

#[test]
fn s3_65_a_full_queue_refuses_executions() {
    let server = serve(&SERVER.replace("max_queue_size = 10000", "max_queue_size = 1"));
    let first = spawn(&server, &["run", "--instance", "production", "--", "true"]);
    until(|| {
        let list =
            server.run(&["task", "list", "--queue", "exec", "--workspace", "production", "--json"]).ok();
        (!list.json()["tasks"].as_array().unwrap().is_empty()).then_some(())
    });
    let mut second = server.command(&["run", "--instance", "production", "--", "false"]);
    let mut second =
        second.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(second.stderr.take().unwrap()).lines().map(Result::unwrap);
    let is_told = lines.any(|line| line.contains("the queue holds 1 unfinished tasks"));
    for mut client in [first, second] {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    assert!(is_told, "the client asks again, and says why");
}

#[test]
fn s3_66_execution_can_be_switched_off() {
    let server = serve(&SERVER.replace("exec_enabled = true", "exec_enabled = false"));
    server.run(&["run", "--instance", "production", "--", "true"]).fails(125, &["a cache only"]);
}
