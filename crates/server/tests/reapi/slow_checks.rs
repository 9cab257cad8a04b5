//! C25: a content store that stands still while it is asked for the outputs of completed executions makes no worker silent.

use std::sync::Arc;
use std::time::Duration;

use authority::Scope;
use bazel_remote_apis::build::bazel::remote::execution::v2::{ActionResult, OutputFile};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use wire::grpc::{
    LeaseHeartbeat, LeasedTask, RegisterWorkerRequest, TaskStatus, UpdateTaskStatusRequest, Verdict,
    WorkHello, WorkRequest,
};

use crate::support::{Served, Setup, Waiting, ask, digest, in_time};

fn scope() -> Scope {
    Scope { tenant: Arc::from("default"), workspace: Arc::from("default") }
}

fn completed(task: &LeasedTask) -> UpdateTaskStatusRequest {
    let file = OutputFile { path: "out".into(), digest: Some(digest(b"out")), ..OutputFile::default() };
    UpdateTaskStatusRequest {
        worker_id: "w".to_owned(),
        task_id: task.task_id.clone(),
        lease_id: task.lease_id.clone(),
        status: TaskStatus::Completed.into(),
        result: Some(ActionResult { output_files: vec![file], ..ActionResult::default() }),
        ..UpdateTaskStatusRequest::default()
    }
}

async fn leased(served: &Served, command: &str) -> (Waiting, LeasedTask) {
    let action = served.action(&[command]).await;
    let waiting = served.execute(ask(&action)).await.unwrap();
    (waiting, served.unregistered_worker("w").await.lease().await)
}

/// The reports of a message were checked one after another, each for up to ten seconds, and its heartbeats decided after
/// them, while the stream was not read.
#[tokio::test]
async fn c25_heartbeats_do_not_wait_for_the_outputs_of_reports_and_reports_not_for_each_other() {
    let setup = Setup::default();
    let gate = setup.gate.clone();
    let served = Served::set_up(setup).await;
    served.upload(&[b"out"]).await;
    let worker = served.worker("w").await;
    let (mut _waiting, mut tasks) = (Vec::new(), Vec::new());
    for command in ["one", "two", "three"] {
        let (waiting, task) = leased(&served, command).await;
        _waiting.push(waiting);
        tasks.push(task);
    }
    let (to, receiver) = mpsc::channel(8);
    let registration =
        RegisterWorkerRequest { worker_id: "w".to_owned(), ..RegisterWorkerRequest::default() };
    let hello = WorkHello { worker: Some(registration), ..WorkHello::default() };
    to.send(WorkRequest { hello: Some(hello), ..WorkRequest::default() }).await.unwrap();
    let mut from = worker.client.clone().work(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    assert!(in_time(from.message()).await.unwrap().unwrap().welcome.is_some());

    gate.set_open(false);
    let running = tasks.pop().unwrap();
    let beat = LeaseHeartbeat {
        lease_id: running.lease_id.clone(),
        progress_pct: Some(50.0),
        ..LeaseHeartbeat::default()
    };
    let message = WorkRequest {
        reports: tasks.iter().map(completed).collect(),
        heartbeats: vec![beat],
        ..WorkRequest::default()
    };
    to.send(message).await.unwrap();
    in_time(gate.waiting(2)).await;
    let running = server::parse_task_id(&running.task_id).unwrap();
    let detail = served.running.handle.task(scope(), running).await.unwrap().unwrap();
    assert!(detail.progress.is_some(), "the heartbeat was decided before");

    gate.set_open(true);
    let answer = in_time(from.message()).await.unwrap().unwrap();
    let verdicts: Vec<_> =
        answer.reports.iter().map(|report| report.answer.as_ref().unwrap().verdict()).collect();
    assert_eq!(verdicts, [Verdict::Committed; 2]);
    assert!(!answer.leases[0].lost, "{answer:?}");
    served.stop().await;
}

#[tokio::test]
async fn c25_a_worker_is_alive_while_the_outputs_of_its_report_are_checked() {
    let setup = Setup::default();
    let gate = setup.gate.clone();
    let served = Served::set_up(setup).await;
    served.upload(&[b"out"]).await;
    let mut worker = served.worker("w").await;
    let (_waiting, task) = leased(&served, "true").await;
    // The pauses between two signs of life are a third of it.
    served.running.handle.set_heartbeat_timeout(Duration::from_secs(3));
    gate.set_open(false);
    let seen = async || {
        let workers = served.running.handle.workers(scope()).await.unwrap();
        workers.iter().find(|worker| &*worker.worker == "w").unwrap().last_heartbeat
    };
    let report = tokio::spawn(async move { worker.client.update_task_status(completed(&task)).await });
    in_time(gate.waiting(1)).await;
    let before = seen().await;
    in_time(async {
        while seen().await <= before {
            assert!(!report.is_finished(), "it is being checked");
            tokio::task::yield_now().await;
        }
    })
    .await;
    served.running.handle.set_heartbeat_timeout(Duration::from_secs(120));
    gate.set_open(true);
    assert_eq!(in_time(report).await.unwrap().unwrap().into_inner().verdict(), Verdict::Committed);
    served.stop().await;
}
