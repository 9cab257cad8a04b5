//! The flooding tenant: submits, polls, uploads and executions, together ten times the requests that it may send. It takes no
//! refusal for an answer, and connects again when it is cut off.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bazel_remote_apis::build::bazel::remote::execution::v2::content_addressable_storage_client::ContentAddressableStorageClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::execution_client::ExecutionClient;
use bazel_remote_apis::build::bazel::remote::execution::v2::{
    Action, BatchUpdateBlobsRequest, Command, Digest, Directory, ExecuteRequest, batch_update_blobs_request,
};
use blobs::DigestFunction;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use prost::Message;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};

use super::super::http::Client;
use super::{FLOODING_TENANT, Options, TIMES_THE_LIMIT};

/// Actions that differ; more are not in flight at one time.
const ACTIONS: u8 = 200;
/// Connections that submit, that upload, and that ask for executions.
const CONNECTIONS: u32 = 8;
const BLOB_BYTES: usize = 16 << 10;
const POLL_MS: u64 = 1_000;

pub(super) struct Flood {
    clients: JoinSet<()>,
    counts: Arc<Counts>,
    began: Instant,
}

/// What the flood consists of.
#[derive(Clone, Copy)]
enum Kind {
    Submit,
    Poll,
    Upload,
    Execution,
}

const KINDS: usize = 4;

#[derive(Default)]
struct Counts {
    /// By kind.
    sent: [AtomicU64; KINDS],
    refused: AtomicU64,
    /// For blobs that differ.
    next_blob: AtomicU64,
}

impl Counts {
    fn answered(&self, kind: Kind, is_refused: bool) {
        self.sent[kind as usize].fetch_add(1, Ordering::Relaxed);
        self.refused.fetch_add(u64::from(is_refused), Ordering::Relaxed);
    }
}

/// What was sent in how much time.
pub(super) struct Sent {
    requests: [u64; KINDS],
    refused: u64,
    time: Duration,
}

impl Sent {
    pub(super) fn per_s(&self) -> f64 {
        self.requests.iter().sum::<u64>() as f64 / self.time.as_secs_f64()
    }

    pub(super) fn refused_per_s(&self) -> f64 {
        self.refused as f64 / self.time.as_secs_f64()
    }

    /// Requests per second of each kind, with the names of their figures.
    pub(super) fn kinds_per_s(&self) -> [(&'static str, f64); KINDS] {
        let names = [
            ("flood_submits_per_s", Kind::Submit),
            ("flood_polls_per_s", Kind::Poll),
            ("flood_uploads_per_s", Kind::Upload),
            ("flood_executions_per_s", Kind::Execution),
        ];
        names.map(|(name, kind)| (name, self.requests[kind as usize] as f64 / self.time.as_secs_f64()))
    }
}

impl Flood {
    pub(super) fn start(address: SocketAddr, options: &Options, actions: &Actions) -> Flood {
        let mut flood = Flood { clients: JoinSet::new(), counts: Arc::default(), began: Instant::now() };
        let all_per_s = options.limit * TIMES_THE_LIMIT;
        // A poll takes a second, so one client sends one in a second.
        let polls = options.polls() * TIMES_THE_LIMIT;
        for n in 0..polls {
            let ask = json!({"workerId": format!("w{n}"), "queues": ["empty"], "waitMs": POLL_MS});
            flood.http(Kind::Poll, address, 1, move |_| {
                (Method::POST, "/v1/leases".to_owned(), Bytes::from(ask.to_string()))
            });
        }
        let each_per_s = (all_per_s.saturating_sub(polls) / 3 / CONNECTIONS).max(1);
        let task = Bytes::from(json!({"queue": "full", "payload": "x".repeat(1_000)}).to_string());
        for n in 0..CONNECTIONS {
            let task = task.clone();
            let submit = move |_| (Method::POST, "/v1/tasks".to_owned(), task.clone());
            flood.http(Kind::Submit, address, each_per_s, submit);
            flood.http(Kind::Upload, address, each_per_s, upload);
            flood.executions(each_per_s, actions.clone(), n);
        }
        flood
    }

    pub(super) async fn stop(mut self) -> Sent {
        self.clients.shutdown().await;
        Sent {
            requests: self.counts.sent.each_ref().map(|sent| sent.load(Ordering::Relaxed)),
            refused: self.counts.refused.load(Ordering::Relaxed),
            time: self.began.elapsed(),
        }
    }

    /// A client that sends requests at a rate.
    fn http(
        &mut self,
        kind: Kind,
        address: SocketAddr,
        per_s: u32,
        request: impl Fn(u64) -> (Method, String, Bytes) + Send + 'static,
    ) {
        let counts = self.counts.clone();
        self.clients.spawn(async move {
            let mut ticks = ticks(per_s);
            let mut client = None;
            loop {
                ticks.tick().await;
                let (method, path, body) = request(counts.next_blob.fetch_add(1, Ordering::Relaxed));
                let mut open = match client.take() {
                    Some(open) => open,
                    None => match Client::connect(address, FLOODING_TENANT).await {
                        Ok(open) => open,
                        Err(_) => continue,
                    },
                };
                // A connection that was cut off is made again.
                if let Ok((status, _)) = open.ask(method, &path, body).await {
                    counts.answered(kind, status == StatusCode::TOO_MANY_REQUESTS);
                    client = Some(open);
                }
            }
        });
    }

    /// A client that asks for executions, which no worker runs, at a rate.
    fn executions(&mut self, per_s: u32, actions: Actions, first: u32) {
        let counts = self.counts.clone();
        self.clients.spawn(async move {
            let mut client = ExecutionClient::new(actions.channel.clone());
            let mut ticks = ticks(per_s);
            for action in actions.digests.iter().cycle().skip(first as usize * 25) {
                ticks.tick().await;
                let request = ExecuteRequest { action_digest: Some(action.clone()), ..Default::default() };
                let answer = client.execute(of_tenant(request)).await;
                let is_refused = answer.is_err_and(|status| status.code() == tonic::Code::ResourceExhausted);
                counts.answered(Kind::Execution, is_refused);
            }
        });
    }
}

/// A blob that the server does not have.
fn upload(number: u64) -> (Method, String, Bytes) {
    let mut content = vec![b'x'; BLOB_BYTES];
    content[..8].copy_from_slice(&number.to_le_bytes());
    let hash = blobs::Digest::of(DigestFunction::Sha256, &content).hash;
    (Method::PUT, format!("/cas/{hash}"), content.into())
}

fn ticks(per_s: u32) -> tokio::time::Interval {
    let mut ticks = interval(Duration::from_secs(1) / per_s);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    ticks
}

/// Actions in the content store of the flooding tenant. Cheap to clone.
#[derive(Clone)]
pub(super) struct Actions {
    channel: Channel,
    digests: Arc<[Digest]>,
}

impl Actions {
    /// In one request, which the limits permit.
    pub(super) async fn upload(address: SocketAddr) -> Result<Actions> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
        let command = Command { arguments: vec!["true".to_owned()], ..Default::default() }.encode_to_vec();
        let root = Directory::default().encode_to_vec();
        let action = |n: u8| {
            let (command_digest, input_root_digest) = (Some(digest(&command)), Some(digest(&root)));
            Action { command_digest, input_root_digest, salt: vec![n], ..Default::default() }.encode_to_vec()
        };
        let actions: Vec<Vec<u8>> = (0..ACTIONS).map(action).collect();
        let digests = actions.iter().map(|action| digest(action)).collect();
        let blobs = actions.into_iter().chain([command, root]);
        let requests = blobs.map(|data| batch_update_blobs_request::Request {
            digest: Some(digest(&data)),
            data,
            ..Default::default()
        });
        let request = BatchUpdateBlobsRequest { requests: requests.collect(), ..Default::default() };
        let answer = ContentAddressableStorageClient::new(channel.clone())
            .batch_update_blobs(of_tenant(request))
            .await?
            .into_inner();
        let is_stored = |status: Option<i32>| status.unwrap_or(0) == 0;
        let codes = answer.responses.iter().map(|stored| stored.status.as_ref().map(|status| status.code));
        ensure!(codes.into_iter().all(is_stored), "the actions were not stored");
        Ok(Actions { channel, digests })
    }
}

fn digest(bytes: &[u8]) -> Digest {
    let digest = blobs::Digest::of(DigestFunction::Sha256, bytes);
    Digest { hash: digest.hash.to_string(), size_bytes: bytes.len() as i64 }
}

fn of_tenant<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(wire::TENANT_HEADER, MetadataValue::from_static(FLOODING_TENANT));
    request
}
