//! The two ways of the worker service: a call for each thing that is said, or a stream.

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};
use tonic_types::StatusExt;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    HeartbeatRequest, LeaseHeartbeat, LeaseStatus, LeaseTaskRequest, LeasedTask, RegisterWorkerRequest,
    TaskStatus, UpdateTaskStatusRequest, Verdict, WorkHello, WorkRequest, WorkResponse,
};

use crate::held::{Held, Say};
use crate::support::Served;

async fn client(served: &Served) -> WorkerSchedulerClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{}", served.address)).unwrap();
    WorkerSchedulerClient::new(endpoint.connect().await.unwrap())
}

fn registration(worker: &str) -> RegisterWorkerRequest {
    RegisterWorkerRequest { worker_id: worker.to_owned(), ..RegisterWorkerRequest::default() }
}

pub(crate) async fn lease(served: &Served, worker: &str) -> LeasedTask {
    let mut client = client(served).await;
    let ask = LeaseTaskRequest {
        worker_id: worker.to_owned(),
        max_tasks: 1,
        queues: vec!["q".to_owned()],
        ..LeaseTaskRequest::default()
    };
    let leased = match client.lease_task(ask.clone()).await {
        Ok(leased) => leased,
        // Not before each lease: a worker that registers again has started anew, and holds nothing.
        Err(_) => {
            client.register_worker(registration(worker)).await.unwrap();
            client.lease_task(ask).await.unwrap()
        }
    };
    leased.into_inner().tasks.remove(0)
}

pub(crate) async fn lease_by_stream(served: &Served, worker: &str) -> LeasedTask {
    let mut heard = stream(served, worker, None, WorkRequest { credit: 1, ..WorkRequest::default() }).await;
    heard.iter_mut().find_map(|message| message.tasks.pop()).expect("a task")
}

pub(crate) async fn say(served: &Served, held: &Held, say: Say) -> String {
    let mut client = client(served).await;
    let Some(report) = report(held, &say) else {
        let worker_id = held.worker.clone();
        let beat = HeartbeatRequest { worker_id, leases: vec![beat(held)], ..HeartbeatRequest::default() };
        let told =
            client.report_heartbeat(scoped(Request::new(beat), held.scope)).await.unwrap().into_inner();
        return lease_words(&told.leases[0]);
    };
    match client.update_task_status(scoped(Request::new(report), held.scope)).await {
        Ok(answer) => verdict_words(answer.into_inner().verdict()),
        Err(status) => {
            let details = status.get_error_details();
            let info = details.error_info().expect("a reason");
            let verdict = info.metadata.get("verdict").map(String::as_str).unwrap_or("?");
            format!("{verdict} {:?} {}", status.code(), info.reason)
        }
    }
}

pub(crate) async fn say_by_stream(served: &Served, held: &Held, say: Say) -> String {
    let message = match report(held, &say) {
        Some(report) => WorkRequest { reports: vec![report], ..WorkRequest::default() },
        None => WorkRequest { heartbeats: vec![beat(held)], ..WorkRequest::default() },
    };
    let heard = stream(served, held.holder, held.scope, message).await;
    if let Some(lease) = heard.iter().find_map(|message| message.leases.first()) {
        return lease_words(lease);
    }
    let answer = heard.iter().find_map(|message| message.reports.first()).expect("an answer");
    let verdict = verdict_words(answer.answer.as_ref().unwrap().verdict());
    match &answer.problem {
        Some(problem) => format!("{verdict} {}", problem.code),
        None => verdict,
    }
}

/// Opens a stream, says one thing, closes its end, and hears all there is.
async fn stream(
    served: &Served,
    worker: &str,
    scope: Option<(&'static str, &'static str)>,
    message: WorkRequest,
) -> Vec<WorkResponse> {
    let (to, receiver) = mpsc::channel(2);
    let hello = WorkHello { worker: Some(registration(worker)), queues: vec!["q".to_owned()] };
    to.send(WorkRequest { hello: Some(hello), ..WorkRequest::default() }).await.unwrap();
    let wants_task = message.credit > 0;
    to.send(message).await.unwrap();
    let request = scoped(Request::new(ReceiverStream::new(receiver)), scope);
    let mut from = client(served).await.work(request).await.unwrap().into_inner();
    let mut to = Some(to).filter(|_| wants_task);
    let mut heard = Vec::new();
    while let Some(message) = from.message().await.unwrap() {
        if !message.tasks.is_empty() {
            to = None;
        }
        heard.push(message);
    }
    drop(to);
    heard
}

/// Nothing for a heartbeat, which is no report.
fn report(held: &Held, say: &Say) -> Option<UpdateTaskStatusRequest> {
    let report = UpdateTaskStatusRequest {
        task_id: held.task.clone(),
        worker_id: held.worker.clone(),
        lease_id: held.lease_id.clone(),
        attempt: held.attempt,
        ..UpdateTaskStatusRequest::default()
    };
    match say {
        Say::Beat => None,
        Say::Complete(result) => Some(UpdateTaskStatusRequest {
            status: TaskStatus::Completed.into(),
            result_json: Bytes::from(result.to_string()),
            ..report
        }),
        Say::Fail(retryable) => Some(UpdateTaskStatusRequest {
            status: TaskStatus::Failed.into(),
            error_message: "bad luck".to_owned(),
            error_code: "E1".to_owned(),
            retryable: Some(*retryable),
            ..report
        }),
    }
}

fn beat(held: &Held) -> LeaseHeartbeat {
    LeaseHeartbeat { lease_id: held.lease_id.clone(), ..LeaseHeartbeat::default() }
}

fn scoped<T>(mut request: Request<T>, scope: Option<(&'static str, &'static str)>) -> Request<T> {
    if let Some((name, value)) = scope {
        request.metadata_mut().insert(name, value.parse().unwrap());
    }
    request
}

fn lease_words(lease: &LeaseStatus) -> String {
    let problem = lease.problem.as_ref().map(|problem| format!(" {}", problem.code)).unwrap_or_default();
    format!("{}{problem}", if lease.lost { "lost" } else { "OK" })
}

fn verdict_words(verdict: Verdict) -> String {
    verdict.as_str_name().trim_start_matches("VERDICT_").to_owned()
}
