//! The five calls of the document's worker service, with executions of a real client.

use std::process::{Child, Stdio};

use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    ActionResult, HeartbeatRequest, LeaseTaskRequest, LeasedTask, RegisterWorkerRequest, TaskStatus,
    UnregisterWorkerRequest, UpdateTaskStatusRequest, WorkerState,
};

use crate::documented_worker::{Build, Place, lease_ends};
use crate::support::worker::coordinator;
use crate::support::{Ran, Server, lessor};
use crate::support_worker::{Line, Worker, registration, server, until};

pub(crate) fn spawn(server: &Server, arguments: &[&str]) -> Child {
    let mut command = server.command(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Leases one task as a worker that knows only the document's fields.
fn lease(server: &Server, worker_id: &str) -> LeasedTask {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut client = WorkerSchedulerClient::connect(server.url()).await.unwrap();
        let worker_id = worker_id.to_owned();
        let register = RegisterWorkerRequest { worker_id: worker_id.clone(), ..Default::default() };
        client.register_worker(register).await.unwrap();
        let ask = LeaseTaskRequest { worker_id, max_tasks: 1, timeout_seconds: 30, ..Default::default() };
        client.lease_task(ask).await.unwrap().into_inner().tasks.pop().expect("a task")
    })
}

/// An execution was leased without a timeout, so that a worker of the document had none to enforce.
#[test]
fn s3_19_an_execution_is_leased_with_the_timeout_of_its_action_or_the_default() {
    let server = server();
    for (worker, arguments, seconds) in [
        ("worker-host-01", &["run", "--timeout", "90s", "--", "true"][..], 90),
        ("worker-host-02", &["run", "--", "true"], 24 * 60 * 60),
    ] {
        let mut client = spawn(&server, arguments);
        let task = lease(&server, worker);
        client.kill().unwrap();
        client.wait().unwrap();
        assert!(task.operation_name.contains("operations/"), "{task:?}");
        let (hash, size) = task.action_digest.split_once('/').unwrap();
        assert!(hash.len() == 64 && size.parse::<u64>().is_ok(), "{task:?}");
        assert_eq!(task.timeout, Some(prost_types::Duration { seconds, nanos: 0 }), "{arguments:?}");
        assert!(task.lease_expires_at.is_some(), "{task:?}");
    }
}

/// A client of remote execution on one side, and on the other a worker that fills in the document's fields alone. The task
/// fails once, in the same words as another one would, and goes back to the same worker.
#[test]
fn s3_9_to_26_a_worker_of_the_document_serves_an_execution_from_its_start_to_its_result() {
    let server = server();
    let mut client = server.command(&["run", "-q", "--", "sh", "-c", "exit 1"]);
    let client = client.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let first = lease(&server, "worker-host-01");
    let worker_id = "worker-host-01".to_owned();
    let update = |task: &LeasedTask, status: TaskStatus| UpdateTaskStatusRequest {
        task_id: task.task_id.clone(),
        worker_id: worker_id.clone(),
        status: status.into(),
        ..Default::default()
    };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut calls = WorkerSchedulerClient::connect(server.url()).await.unwrap();
        calls.update_task_status(update(&first, TaskStatus::Executing)).await.unwrap();
        let state = WorkerState::Busy.into();
        let beat = HeartbeatRequest { worker_id: worker_id.clone(), state, ..Default::default() };
        assert!(!calls.report_heartbeat(beat).await.unwrap().into_inner().should_shutdown);
        let error_message = "the machine is on fire".to_owned();
        let failed = UpdateTaskStatusRequest { error_message, ..update(&first, TaskStatus::Failed) };
        calls.update_task_status(failed).await.unwrap();
    });
    let again = lease(&server, "worker-host-01");
    assert_eq!((&again.task_id, &again.action_digest), (&first.task_id, &first.action_digest));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut calls = WorkerSchedulerClient::connect(server.url()).await.unwrap();
        let result = ActionResult { exit_code: 7, stdout_raw: b"made up\n".to_vec(), ..Default::default() };
        let completed =
            UpdateTaskStatusRequest { result: Some(result), ..update(&again, TaskStatus::Completed) };
        calls.update_task_status(completed).await.unwrap();
        let leave = UnregisterWorkerRequest { worker_id: worker_id.clone(), ..Default::default() };
        calls.unregister_worker(leave).await.unwrap();
    });
    let ran = Ran::from(client.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), (7, "made up\n"), "{ran:?}");
    assert!(registration(&server, "worker-host-01").is_null(), "it has unregistered");
}

#[test]
fn s3_9_to_26_our_worker_runs_executions_with_the_documents_calls_alone() {
    let (mut server, dir) = (server(), tempfile::tempdir().unwrap());
    let url = server.url();
    let flags = ["--protocol", "plan", "--id", "plan-1", "--slots", "2", "--server-url", &url];
    let worker = Worker::start(dir.path(), &flags);
    let known = until(|| Some(registration(&server, "plan-1")).filter(|known| !known.is_null()));
    assert_eq!(
        (&known["sessionId"], &known["maxConcurrentExecutions"]),
        (&serde_json::Value::Null, &2.into())
    );
    let ran = server.run(&["run", "-q", "--", "sh", "-c", "echo out; echo err >&2; exit 3"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (3, "out\n", "err\n"));
    // A server that comes back has forgotten the worker, which registers again.
    let address = server.address();
    server.kill();
    let server = server.start_again(|dir| coordinator(dir, &address));
    let ran = server.run(&["run", "--json", "--", "sh", "-c", "exit 0"]).ok();
    assert_eq!(ran.json()["worker"], "plan-1");
    assert_eq!(worker.terminate(), Some(0));
    assert!(registration(&server, "plan-1").is_null(), "it has unregistered");
}

/// To the server, a worker that registers again has started anew: its leases would be released.
#[test]
fn our_worker_with_the_documents_calls_keeps_its_lease_over_a_lost_connection() {
    let (server, place) = (server(), Place::new());
    let line = Line::to(&server);
    let config = place.dir.path().join("worker.toml");
    let file = format!(
        "[worker]\nserver_url = \"{}\"\nmax_concurrent_tasks = 2\nheartbeat_interval_seconds = 1\n",
        line.url
    );
    std::fs::write(&config, file).unwrap();
    let flags = ["--config", config.to_str().unwrap(), "--protocol", "plan", "--id", "plan-1"];
    let worker = Worker::start(place.dir.path(), &[&flags[..], &["--backend", "host"]].concat());
    let build = Build::start(&server, place.dir.path(), &place.reads_the_pipe());
    place.until_begun();
    line.cut();
    worker.wait_for_log("the coordinator did not answer", 1);
    let before = heard_at(&server, "plan-1");
    line.reconnect();
    until(|| (heard_at(&server, "plan-1") > before).then_some(()));
    std::fs::write(&place.pipe, "went on").unwrap();
    let built = build.ended();
    assert_eq!((built.code, built.stdout.as_str()), (0, "went on"), "{built:?}");
    let task = server.get("/v1/tasks?queue=exec")["tasks"][0]["taskId"].as_str().unwrap().to_owned();
    assert_eq!(lease_ends(&server, &task), []);
    assert_eq!(worker.terminate(), Some(0));
}

/// When a worker was heard last.
fn heard_at(server: &Server, worker: &str) -> jiff::Timestamp {
    let list = server.get("/v1/workers");
    let mut workers = list["workers"].as_array().unwrap().iter();
    let known = workers.find(|known| known["workerId"] == worker).unwrap();
    known["lastHeartbeatAt"].as_str().unwrap().parse().unwrap()
}

#[test]
fn the_scheduler_calls_serve_no_other_queue() {
    let flags = ["worker", "daemon", "--protocol", "plan", "--queue", "jobs"];
    Ran::from(lessor(&flags).output().unwrap()).fails(2, &["only the queue exec"]);
    Ran::from(lessor(&["worker", "daemon", "--protocol", "x"]).output().unwrap())
        .fails(2, &["stream or plan"]);
}
