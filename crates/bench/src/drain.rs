//! Load on the nodes of a cluster while something happens to them: cycles, long polls and worker streams. No client repeats a
//! request; a client whose connection is closed after an answer, or refused, goes to the next node, as load balancers do.

use std::io::Read;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use bytes::Bytes;
use contract_clients::grpc;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{TaskStatus, UpdateTaskStatusRequest, Verdict, WorkRequest};

use super::percentiles::Percentiles;
use super::report::{Line, Report};

/// How long a client looks for a node that it can connect to.
const MAX_CONNECT: Duration = Duration::from_secs(10);
const CONNECT_PAUSE: Duration = Duration::from_millis(5);
/// How long a worker waits for a task, and a poll for one that comes at the end.
const WAIT_MS: u64 = wire::MAX_WAIT_MS;
/// A poll that is answered with nothing this much before its time was ended by the server.
const EARLY: Duration = Duration::from_secs(1);
/// How long the load goes on to end what it began.
const MAX_END: Duration = Duration::from_secs(30);
/// Errors that are shown.
const SHOWN_ERRORS: usize = 5;

#[derive(clap::Args)]
#[command(after_help = "\
The load runs until standard input ends, so that a pipe says what happens meanwhile:
  (sleep 5; lessor node drain a --config lessor.toml >&2; sleep 10) |
    lessor bench drain 10.0.0.1:8980 10.0.0.2:8980
It must end within cluster.drain_s, when the streams that are open are ended.

Exit codes: 0 nothing failed, 1 something failed.")]
pub(crate) struct Options {
    /// The nodes, which serve without authentication
    #[arg(required = true, value_name = "ADDRESS")]
    nodes: Vec<SocketAddr>,

    /// Clients that submit, lease and complete, over HTTP/1.1
    #[arg(long, default_value_t = 64)]
    clients: usize,

    /// Long polls that wait until the end
    #[arg(long, default_value_t = 200)]
    polls: usize,

    /// Worker streams over gRPC
    #[arg(long, default_value_t = 16)]
    streams: usize,

    /// Fail when the longest pause of a client exceeds this at the 99th percentile
    #[arg(long, value_name = "MS")]
    max_pause_ms: Option<f64>,
}

#[derive(Default)]
struct Seen {
    /// Tells the queues of this run from those of earlier ones, which may have left something.
    run: u64,
    requests: AtomicU64,
    cycles: AtomicU64,
    streamed: AtomicU64,
    polls_answered: AtomicU64,
    polls_ended_early: AtomicU64,
    second_attempts: AtomicU64,
    errors: Mutex<Vec<String>>,
    times: Mutex<Vec<Duration>>,
    /// The longest time of each client.
    longest: Mutex<Vec<Duration>>,
    is_over: AtomicBool,
}

impl Seen {
    fn fail(&self, who: &str, error: &anyhow::Error) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.push(format!("{who}: {error:#}"));
    }

    fn queue(&self, name: &str) -> String {
        format!("{name}-{}", self.run)
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn note_attempt(&self, attempt: u64) {
        if attempt != 1 {
            self.second_attempts.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(crate) async fn run(options: &Options, report: &Report) -> Result<()> {
    let seen = Arc::new(Seen { run: u64::from(getrandom::u32().unwrap_or_default()), ..Seen::default() });
    let nodes = Arc::<[SocketAddr]>::from(&*options.nodes);
    let (over, end) = watch::channel(());
    let mut load = JoinSet::new();
    for n in 0..options.polls {
        let (mut client, seen) = (Client::new(nodes.clone(), n), seen.clone());
        load.spawn(async move {
            let polled = poll(&mut client, &format!("poll{n}"), &seen).await;
            polled.inspect_err(|error| seen.fail("poll", error)).is_ok()
        });
    }
    for n in 0..options.streams {
        let (nodes, seen, end) = (nodes.clone(), seen.clone(), end.clone());
        load.spawn(async move {
            let streamed = stream(nodes, n, &seen, end).await;
            streamed.inspect_err(|error| seen.fail("stream", error)).is_ok()
        });
    }
    for n in 0..options.clients {
        let (mut client, seen) = (Client::new(nodes.clone(), n), seen.clone());
        load.spawn(async move {
            let mut longest = Duration::ZERO;
            while !seen.is_over() {
                if let Err(error) = cycle(&mut client, n, &seen, &mut longest).await {
                    seen.fail("client", &error);
                }
            }
            seen.longest.lock().unwrap_or_else(PoisonError::into_inner).push(longest);
            true
        });
    }
    // Whoever makes things happen may wait for this line.
    eprintln!("lessor bench: the load runs until standard input ends");
    let _ = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await;
    seen.is_over.store(true, Ordering::Relaxed);
    let mut client = Client::new(nodes, 0);
    for _ in 0..options.polls {
        client.post("/v1/tasks", &json!({"queue": seen.queue("polled"), "payload": {}})).await?;
    }
    drop(over);
    let ended = timeout(MAX_END, async { while load.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        seen.fail("load", &anyhow!("{} clients were not answered within {MAX_END:?}", load.len()));
    }
    show(options, &seen, report)
}

fn show(options: &Options, seen: &Seen, report: &Report) -> Result<()> {
    let errors = seen.errors.lock().unwrap_or_else(PoisonError::into_inner);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let times = Percentiles::of(seen.times.lock().unwrap_or_else(PoisonError::into_inner).iter().copied());
    let longest = seen.longest.lock().unwrap_or_else(PoisonError::into_inner);
    let longest = Percentiles::of(longest.iter().copied());
    let line = Line::new("drain")
        .with("clients", options.clients)
        .with("polls", options.polls)
        .with("streams", options.streams)
        .with("requests", count(&seen.requests))
        .with("cycles", count(&seen.cycles))
        .with("streamed", count(&seen.streamed))
        .with("failed", errors.len())
        .with("polls_answered", count(&seen.polls_answered))
        .with("polls_ended_early", count(&seen.polls_ended_early))
        .with("second_attempts", count(&seen.second_attempts))
        .figure("p50_ms", times.at_ms(50.0))
        .figure("p99_ms", times.at_ms(99.0))
        .figure("pause_p50_ms", longest.at_ms(50.0))
        .figure("pause_p99_ms", longest.at_ms(99.0))
        .figure("pause_max_ms", longest.at_ms(100.0));
    report.line(line);
    ensure!(errors.is_empty(), "{}", errors[..errors.len().min(SHOWN_ERRORS)].join("\n"));
    ensure!(count(&seen.second_attempts) == 0, "leases were released or expired");
    ensure!(count(&seen.polls_answered) == options.polls as u64, "not every poll got a task");
    if let Some(most) = options.max_pause_ms {
        let pause = longest.at_ms(99.0);
        ensure!(pause <= most, "the pause was {pause:.0} ms at the 99th percentile, more than {most} ms");
    }
    Ok(())
}

/// Submits a task, leases some task, and completes it.
async fn cycle(client: &mut Client, n: usize, seen: &Seen, longest: &mut Duration) -> Result<()> {
    let worker = format!("client{n}");
    let mut timed = async |path: &str, body: Value| -> Result<Value> {
        let began = Instant::now();
        let answer = client.post(path, &body).await;
        let took = began.elapsed();
        *longest = (*longest).max(took);
        seen.requests.fetch_add(1, Ordering::Relaxed);
        seen.times.lock().unwrap_or_else(PoisonError::into_inner).push(took);
        answer
    };
    timed("/v1/tasks", json!({"queue": seen.queue("cycled"), "payload": {}})).await?;
    let leased =
        timed("/v1/leases", json!({"workerId": worker, "queues": [seen.queue("cycled")], "waitMs": WAIT_MS}))
            .await?;
    let lease = leased["leases"].get(0).context("no task came")?;
    seen.note_attempt(lease["attempt"].as_u64().unwrap_or(0));
    let path = format!("/v1/leases/{}/complete", lease["leaseId"].as_str().unwrap_or_default());
    let verdict = timed(&path, json!({"workerId": worker, "result": 1})).await?;
    ensure!(verdict["verdict"] == "COMMITTED", "a completion was answered {verdict}");
    seen.cycles.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Waits for one task, and completes it.
async fn poll(client: &mut Client, worker: &str, seen: &Seen) -> Result<()> {
    loop {
        let began = Instant::now();
        let body = json!({"workerId": worker, "queues": [seen.queue("polled")], "waitMs": WAIT_MS});
        let leased = client.post("/v1/leases", &body).await?;
        let Some(lease) = leased["leases"].get(0) else {
            if began.elapsed() + EARLY < Duration::from_millis(WAIT_MS) {
                seen.polls_ended_early.fetch_add(1, Ordering::Relaxed);
            }
            continue;
        };
        seen.note_attempt(lease["attempt"].as_u64().unwrap_or(0));
        let path = format!("/v1/leases/{}/complete", lease["leaseId"].as_str().unwrap_or_default());
        let verdict = client.post(&path, &json!({"workerId": worker, "result": 1})).await?;
        ensure!(verdict["verdict"] == "COMMITTED", "a completion was answered {verdict}");
        seen.polls_answered.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
}

/// Works over one stream, which stays open until the end, on tasks that a client of its own submits.
async fn stream(nodes: Arc<[SocketAddr]>, n: usize, seen: &Seen, mut end: watch::Receiver<()>) -> Result<()> {
    let node = nodes[n % nodes.len()];
    let queue = seen.queue(&format!("streamed{n}"));
    let channel = Endpoint::from_shared(format!("http://{node}"))?.connect().await?;
    let (sender, receiver) = mpsc::channel(4);
    sender.send(grpc::hello(grpc::registration(&format!("stream{n}")), &queue, 1)).await?;
    let mut worker = WorkerSchedulerClient::new(channel);
    let mut messages = worker.work(ReceiverStream::new(receiver)).await?.into_inner();
    let open = Semaphore::new(1);
    let submits = async {
        let mut client = Client::new(nodes.clone(), n);
        loop {
            open.acquire().await?.forget();
            client.post("/v1/tasks", &json!({"queue": queue, "payload": {}})).await?;
        }
        #[expect(unreachable_code, reason = "it names the type of the error")]
        anyhow::Ok(())
    };
    let works = async {
        while let Some(message) = messages.message().await? {
            for task in message.tasks {
                seen.note_attempt(u64::from(task.attempt));
                let report = UpdateTaskStatusRequest {
                    lease_id: task.lease_id,
                    status: TaskStatus::Completed.into(),
                    result_json: Bytes::from_static(b"1"),
                    ..UpdateTaskStatusRequest::default()
                };
                sender
                    .send(WorkRequest { reports: vec![report], credit: 1, ..WorkRequest::default() })
                    .await?;
            }
            for report in message.reports {
                let verdict = report.answer.as_ref().map(|answer| answer.verdict());
                ensure!(verdict == Some(Verdict::Committed), "a completion was answered {report:?}");
                seen.streamed.fetch_add(1, Ordering::Relaxed);
                open.add_permits(1);
            }
        }
        bail!("the server ended the stream")
    };
    tokio::select! {
        failed = submits => failed.map(drop),
        failed = works => failed,
        // The sender is dropped at the end.
        _ = end.changed() => Ok(()),
    }
}

/// One connection at a time, to one of the nodes.
struct Client {
    nodes: Arc<[SocketAddr]>,
    at: usize,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl Client {
    fn new(nodes: Arc<[SocketAddr]>, at: usize) -> Client {
        Client { nodes, at, connection: None }
    }

    async fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        let mut connection = self.connect().await?;
        let request = Request::post(path)
            .header(HOST, self.node().to_string())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.to_string())))?;
        let response =
            connection.send_request(request).await.with_context(|| format!("{path} of {}", self.node()))?;
        let status = response.status();
        let is_last = response.headers().get(CONNECTION).is_some_and(|value| value == "close");
        let answer = response.into_body().collect().await?.to_bytes();
        if is_last {
            self.at += 1;
        } else {
            self.connection = Some(connection);
        }
        ensure!(
            status.is_success(),
            "{path} of {}: {status} {}",
            self.node(),
            String::from_utf8_lossy(&answer)
        );
        Ok(serde_json::from_slice(&answer)?)
    }

    fn node(&self) -> SocketAddr {
        self.nodes[self.at % self.nodes.len()]
    }

    /// The open connection, or a new one to the first node that takes it.
    async fn connect(&mut self) -> Result<SendRequest<Full<Bytes>>> {
        if let Some(mut open) = self.connection.take()
            && open.ready().await.is_ok()
        {
            return Ok(open);
        }
        let began = Instant::now();
        loop {
            match TcpStream::connect(self.node()).await {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
                    tokio::spawn(connection);
                    sender.ready().await?;
                    return Ok(sender);
                }
                // With one address there is no other node to go to: a refusal is a failure.
                Err(error) if self.nodes.len() == 1 || began.elapsed() > MAX_CONNECT => {
                    return Err(error).with_context(|| format!("cannot connect to {}", self.node()));
                }
                Err(_) => {
                    self.at += 1;
                    sleep(CONNECT_PAUSE).await;
                }
            }
        }
    }
}
