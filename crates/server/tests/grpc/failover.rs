//! A worker's stream at a node whose requests go to one owner of the ledger, and then to the next.

use coordinator::{Options, Router, RouterOptions};
use ledger::memory::MemoryStorage;
use server::App;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::Endpoint;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{Verdict, WorkHello, WorkRequest};

use crate::support::{completed, in_time, registration, submit, task};

/// The new owner knows no worker; the node at which the worker holds its stream registers it there.
#[tokio::test]
async fn a_stream_goes_on_when_another_node_takes_over() {
    let storage = MemoryStorage::default();
    let first = coordinator::start(storage.open(), Options::default()).unwrap();
    let (router, handle) = Router::new(RouterOptions::default());
    router.own(first.report.epoch, &first.handle);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let serving = server::serve(listener, App::new(handle.clone(), [7; 32]), std::future::pending());
    let _serving = AbortOnDropHandle::new(tokio::spawn(serving));
    let mut client =
        WorkerSchedulerClient::new(Endpoint::from_shared(address).unwrap().connect().await.unwrap());

    let hello = WorkHello { worker: Some(registration("w")), queues: vec!["q".to_owned()] };
    let (to, receiver) = mpsc::channel(8);
    to.send(WorkRequest { hello: Some(hello), credit: 2, ..WorkRequest::default() }).await.unwrap();
    let mut stream = client.work(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    assert!(in_time(stream.message()).await.unwrap().unwrap().welcome.is_some());
    submit(&mut client, task("q")).await;
    let before = in_time(stream.message()).await.unwrap().unwrap().tasks.remove(0);

    let second = coordinator::start(storage.open(), Options::default()).unwrap();
    router.own(second.report.epoch, &second.handle);
    submit(&mut client, task("q")).await;
    let after = in_time(stream.message()).await.unwrap().unwrap().tasks.remove(0);
    assert_eq!(handle.registered_count().await, Ok(1));
    let reports = [&before, &after].map(|task| completed("", task, "{}")).into();
    to.send(WorkRequest { reports, ..WorkRequest::default() }).await.unwrap();
    let answers = in_time(stream.message()).await.unwrap().unwrap().reports;
    let verdicts: Vec<_> = answers.iter().map(|answer| answer.answer.as_ref().unwrap().verdict()).collect();
    assert_eq!(verdicts, [Verdict::Committed, Verdict::Committed]);
}
