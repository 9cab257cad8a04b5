//! A stream whose answers nobody takes any more.

use std::sync::Arc;

use authority::Scope;
use axum::body::Body;
use coordinator::Activity;
use ledger::memory::MemoryStorage;
use prost::Message;
use tokio::sync::mpsc;
use tonic::Streaming;
use tonic::codec::Codec;
use tonic_prost::ProstCodec;
use wire::grpc::{RegisterWorkerRequest, WorkHello, WorkRequest, WorkResponse, WorkerState};

use super::outbox::Outbox;
use super::stream::Stream;
use crate::app::App;
use crate::edge::auth::Caller;

/// Messages that have all arrived.
fn arrived(messages: &[WorkRequest]) -> Streaming<WorkRequest> {
    let mut bytes = Vec::new();
    for message in messages {
        let message = message.encode_to_vec();
        bytes.push(0);
        bytes.extend((message.len() as u32).to_be_bytes());
        bytes.extend(message);
    }
    let decoder = ProstCodec::<WorkResponse, WorkRequest>::default().decoder();
    Streaming::new_request(decoder, Body::from(bytes), None, None)
}

/// The layer of authentication drops the answers when the key of a stream ends; messages of the worker may be here already.
#[tokio::test]
async fn a_worker_that_is_told_nothing_more_is_not_heard_either() {
    let storage = MemoryStorage::default().open();
    let running = coordinator::start(storage, coordinator::Options::default()).unwrap();
    let app = App::new(running.handle, [7; 32]);
    let scope = Scope { tenant: "t".into(), workspace: "w".into() };
    let worker = RegisterWorkerRequest { worker_id: "w".to_owned(), ..RegisterWorkerRequest::default() };
    let hello = WorkHello { worker: Some(worker), queues: vec!["q".to_owned()] };
    let hello = WorkRequest { hello: Some(hello), ..WorkRequest::default() };
    let later = WorkRequest { state: WorkerState::Draining.into(), ..WorkRequest::default() };
    let (sender, receiver) = mpsc::channel(1);
    drop(receiver);
    let caller = (scope.clone(), Caller::default(), None);
    Stream::run(app.clone(), caller, arrived(&[hello, later]), None, Outbox::new(sender), None).await;
    let registered = app.handle.registered(&scope, &Arc::from("w")).await.unwrap();
    assert_eq!(registered.expect("the hello was heard").status.activity, Activity::Idle);
}
