//! Measures the worker service over gRPC: three calls per cycle, or streams with batches; and a health check, which is
//! the no-op of the same stack. Calls use a lean client, streams the channel of the gRPC library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use contract_clients::grpc::{self, Client};
use hyper::body::Body;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::GrpcService;
use tonic::codegen::StdError;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    LeaseTaskRequest, LeasedTask, SubmitTask, SubmitTasksRequest, TaskStatus, UpdateTaskStatusRequest,
    Verdict, WorkRequest,
};

use super::http::Server;
use super::http2::Http2;
use super::load::{LoadGenerator, Rate};

const QUEUE: &str = "bench";
/// How long a worker waits for a task.
const WAIT_S: i64 = 30;
/// Batches that a worker requests ahead: one to work on, and one in flight.
const BATCHES: usize = 2;

/// A connection that makes calls.
pub(crate) trait Connection:
    GrpcService<
        tonic::body::Body,
        Error: Into<StdError>,
        Future: Send,
        ResponseBody: Body<Data = Bytes, Error: Into<StdError> + Send> + Send + 'static,
    > + Send
    + 'static
{
}

impl Connection for Channel {}
impl Connection for Http2 {}

/// The rate of no-op calls over channels, as streams and remote execution have them.
pub(crate) async fn noop(server: &Server, clients: usize, time: Duration) -> Result<Rate> {
    let mut load = LoadGenerator::new(0);
    for _ in 0..clients {
        let client = HealthClient::new(connect(server).await?);
        load.clients.spawn(check(client, load.done.clone()));
    }
    load.measure(Some(server.process()?), time).await
}

/// The rate of no-op calls with the client of [`calls`].
pub(crate) async fn lean_noop(server: &Server, clients: usize, time: Duration) -> Result<Rate> {
    let mut load = LoadGenerator::new(0);
    for _ in 0..clients {
        let client = HealthClient::with_origin(Http2::connect(server).await?, Http2::origin(server)?);
        load.clients.spawn(check(client, load.done.clone()));
    }
    load.measure(Some(server.process()?), time).await
}

async fn check(mut client: HealthClient<impl Connection>, done: Arc<AtomicU64>) -> Result<()> {
    loop {
        client.check(HealthCheckRequest::default()).await?;
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Cycles with three calls each: submit, lease, complete.
pub(crate) async fn calls(
    server: &Server,
    clients: usize,
    payload_bytes: usize,
    time: Duration,
) -> Result<Rate> {
    let mut load = LoadGenerator::new(clients);
    let connect = async || {
        let client = Http2::connect(server).await?;
        anyhow::Ok(WorkerSchedulerClient::with_origin(client, Http2::origin(server)?))
    };
    for n in 0..clients {
        let submitter = connect().await?;
        load.clients.spawn(submit(submitter, load.open_tasks.clone(), payload(payload_bytes), 1));
        let worker = connect().await?;
        load.clients.spawn(call(worker, format!("w{n}"), load.open_tasks.clone(), load.done.clone()));
    }
    load.measure(Some(server.process()?), time).await
}

/// Cycles with streams, and batches of this size.
pub(crate) async fn streams(
    server: &Server,
    clients: usize,
    payload_bytes: usize,
    batch: usize,
    time: Duration,
) -> Result<Rate> {
    let mut load = LoadGenerator::new(clients * batch);
    for n in 0..clients {
        let submitter = WorkerSchedulerClient::new(connect(server).await?);
        load.clients.spawn(submit(submitter, load.open_tasks.clone(), payload(payload_bytes), batch));
        let worker = WorkerSchedulerClient::new(connect(server).await?);
        load.clients.spawn(work(worker, format!("w{n}"), batch, load.open_tasks.clone(), load.done.clone()));
    }
    load.measure(Some(server.process()?), time).await
}

async fn call(
    mut worker: WorkerSchedulerClient<Http2>,
    worker_id: String,
    open_tasks: Arc<Semaphore>,
    done: Arc<AtomicU64>,
) -> Result<()> {
    worker.register_worker(grpc::registration(&worker_id)).await?;
    let ask = LeaseTaskRequest { timeout_seconds: WAIT_S, ..grpc::lease(&worker_id, QUEUE, 1) };
    loop {
        let leased = worker.lease_task(ask.clone()).await?.into_inner();
        let task = leased.tasks.into_iter().next().context("no task came in time")?;
        let answer = worker.update_task_status(completion(task, worker_id.clone())).await?.into_inner();
        ensure!(answer.verdict() == Verdict::Committed, "a completion was answered {answer:?}");
        open_tasks.add_permits(1);
        done.fetch_add(1, Ordering::Relaxed);
    }
}

async fn connect(server: &Server) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(server.url().to_string())?.tcp_nodelay(true);
    Ok(server.connector().connect(&endpoint).await?)
}

fn payload(bytes: usize) -> Bytes {
    format!("\"{}\"", "1".repeat(bytes.saturating_sub(2))).into()
}

async fn submit(
    mut client: WorkerSchedulerClient<impl Connection>,
    open_tasks: Arc<Semaphore>,
    payload: Bytes,
    batch: usize,
) -> Result<()> {
    let task = SubmitTask { queue: QUEUE.to_owned(), payload, ..SubmitTask::default() };
    loop {
        open_tasks.acquire_many(batch as u32).await?.forget();
        let answer = client.submit_tasks(SubmitTasksRequest { tasks: vec![task.clone(); batch] }).await?;
        if let Some(refused) = answer.into_inner().tasks.into_iter().find_map(|task| task.problem) {
            bail!("a submit was refused: {refused:?}");
        }
    }
}

async fn work(
    mut client: Client,
    worker_id: String,
    batch: usize,
    open_tasks: Arc<Semaphore>,
    done: Arc<AtomicU64>,
) -> Result<()> {
    let (sender, receiver) = mpsc::channel(2 * BATCHES);
    sender.send(grpc::hello(grpc::registration(&worker_id), QUEUE, (batch * BATCHES) as u32)).await?;
    let mut answers = client.work(ReceiverStream::new(receiver)).await?.into_inner();
    while let Some(message) = answers.message().await? {
        if !message.tasks.is_empty() {
            let credit = message.tasks.len() as u32;
            let reports = message.tasks.into_iter().map(|task| completion(task, String::new())).collect();
            sender.send(WorkRequest { reports, credit, ..WorkRequest::default() }).await?;
        }
        if !message.reports.is_empty() {
            let committed = |answer: &wire::grpc::ReportAnswer| {
                answer.answer.as_ref().is_some_and(|answer| answer.verdict() == Verdict::Committed)
            };
            if let Some(other) = message.reports.iter().find(|answer| !committed(answer)) {
                bail!("a completion was answered {other:?}");
            }
            open_tasks.add_permits(message.reports.len());
            done.fetch_add(message.reports.len() as u64, Ordering::Relaxed);
        }
    }
    bail!("the server ended the stream")
}

fn completion(task: LeasedTask, worker_id: String) -> UpdateTaskStatusRequest {
    UpdateTaskStatusRequest {
        worker_id,
        lease_id: task.lease_id,
        status: TaskStatus::Completed.into(),
        result_json: Bytes::from_static(b"1"),
        ..UpdateTaskStatusRequest::default()
    }
}
