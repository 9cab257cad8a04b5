//! The orders of the operator for workers of the scheduler's calls and of the stream.

use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Streaming};
use wire::grpc::{
    HeartbeatRequest, HeartbeatResponse, LeaseTaskRequest, RegisterWorkerRequest, UnregisterWorkerRequest,
    Verdict, WorkHello, WorkRequest, WorkResponse,
};

use crate::support::{Client, Served, ask, completed, in_time, lease, registration};

async fn order(served: &Served, order: &str) -> serde_json::Value {
    served.send("POST", &format!("/v1/workers/w/{order}"), json!({})).await
}

async fn heartbeat(client: &mut Client) -> HeartbeatResponse {
    let beat = HeartbeatRequest { worker_id: "w".to_owned(), ..HeartbeatRequest::default() };
    client.report_heartbeat(beat).await.unwrap().into_inner()
}

#[tokio::test]
async fn s3_25_the_operator_stops_a_worker_of_the_plan_which_finishes_what_it_runs() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    served.submit("q").await;
    let held = lease(&mut client, "w", "q").await;
    assert!(!heartbeat(&mut client).await.should_shutdown);
    let later = served.submit("q").await;
    assert_eq!(order(&served, "stop").await["stopping"], true);
    let told = heartbeat(&mut client).await;
    assert!(told.should_shutdown && told.stopped_by_operator && told.registered, "{told:?}");
    let nothing = client.lease_task(ask("w", "q")).await.unwrap().into_inner().tasks;
    assert!(nothing.is_empty(), "{nothing:?}");
    let done = client.update_task_status(completed("w", &held, "1")).await.unwrap().into_inner();
    assert_eq!(done.verdict(), Verdict::Committed);
    // It registers again, for example after a lost connection: it is told again.
    client.register_worker(registration("w")).await.unwrap();
    assert!(heartbeat(&mut client).await.should_shutdown);
    let leave = UnregisterWorkerRequest { worker_id: "w".to_owned(), ..UnregisterWorkerRequest::default() };
    client.unregister_worker(leave).await.unwrap();
    let left = served.known("w").await;
    assert_eq!(
        (&left["drained"], &left["stopping"], &left["registration"]),
        (&json!(true), &json!(false), &json!(null)),
        "the operator sees that it is drained: {left}"
    );
    // It starts again: it may stay, but gets nothing until it is resumed.
    client.register_worker(registration("w")).await.unwrap();
    assert!(!heartbeat(&mut client).await.should_shutdown);
    assert!(client.lease_task(ask("w", "q")).await.unwrap().into_inner().tasks.is_empty());
    order(&served, "resume").await;
    assert_eq!(lease(&mut client, "w", "q").await.task_id, later);
}

/// The wait of a drained worker must not end at once, or the worker would ask again without a pause.
#[tokio::test]
async fn c34_a_long_poll_of_a_drained_worker_waits_and_is_served_when_it_is_resumed() {
    let served = Served::start().await;
    let mut client = served.worker("w").await;
    order(&served, "drain").await;
    let task_id = served.submit("q").await;
    let waiting = tokio::spawn(async move {
        client
            .lease_task(LeaseTaskRequest { timeout_seconds: 30, ..ask("w", "q") })
            .await
            .unwrap()
            .into_inner()
    });
    served.polls(1).await;
    assert!(!waiting.is_finished());
    order(&served, "resume").await;
    assert_eq!(in_time(waiting).await.unwrap().tasks[0].task_id, task_id);
}

fn hello(session: &str, credit: u32) -> WorkRequest {
    let worker = RegisterWorkerRequest { session_id: session.to_owned(), ..registration("w") };
    let hello = WorkHello { worker: Some(worker), queues: vec!["q".to_owned()] };
    WorkRequest { hello: Some(hello), credit, ..WorkRequest::default() }
}

async fn open(served: &Served, first: WorkRequest) -> (mpsc::Sender<WorkRequest>, Streaming<WorkResponse>) {
    let (to, receiver) = mpsc::channel(8);
    to.send(first).await.unwrap();
    let request = Request::new(ReceiverStream::new(receiver));
    let mut from = served.client().await.work(request).await.unwrap().into_inner();
    assert!(next(&mut from).await.welcome.is_some());
    (to, from)
}

async fn next(from: &mut Streaming<WorkResponse>) -> WorkResponse {
    in_time(from.message()).await.unwrap().expect("the stream goes on")
}

#[tokio::test]
async fn s3_25_the_operator_stops_a_worker_of_the_stream_and_its_report_is_accepted() {
    let served = Served::start().await;
    served.submit("q").await;
    let (to, mut from) = open(&served, hello("one", 2)).await;
    let held = next(&mut from).await.tasks.remove(0);
    assert_eq!(order(&served, "stop").await["activeLeases"], 1);
    let told = next(&mut from).await;
    assert!(told.should_shutdown && told.stopped_by_operator, "{told:?}");
    let report = WorkRequest { reports: vec![completed("", &held, "1")], ..WorkRequest::default() };
    to.send(report).await.unwrap();
    assert_eq!(next(&mut from).await.reports[0].answer.as_ref().unwrap().verdict(), Verdict::Committed);
    // The same session comes back, and is told again.
    drop((to, from));
    let (to, mut from) = open(&served, hello("one", 1)).await;
    assert!(next(&mut from).await.stopped_by_operator);
    // Another session is not asked to stop, but gets nothing either.
    drop((to, from));
    let later = served.submit("q").await;
    let (_to, mut from) = open(&served, hello("two", 1)).await;
    assert_eq!(served.task(&later).await["state"], "WAITING");
    order(&served, "resume").await;
    let given = next(&mut from).await;
    assert!(!given.should_shutdown, "{given:?}");
    assert_eq!(given.tasks[0].task_id, later);
}
