//! One stream to the coordinator, from hello to its end.

use std::time::Duration;

use lessor_sdk::protocol::random_id;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_types::StatusExt;
use wire::grpc::worker_scheduler_client::WorkerSchedulerClient;
use wire::grpc::{
    HeartbeatRequest, LeaseStatus, LeaseTaskRequest, RegisterWorkerRequest, RegisterWorkerResponse,
    ResourceLimits, UnregisterWorkerRequest, WorkHello, WorkRequest, WorkResponse, WorkerCapabilities,
};
use wire::{TENANT_HEADER, WORKSPACE_HEADER};

use crate::{Config, Error};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the coordinator may take to answer a call that does not wait for tasks.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The server's largest message.
pub(super) const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;
/// One message in flight; everything that is due meanwhile goes into the next one.
const OUTBOX_MESSAGES: usize = 1;

/// Connects with the same configuration any number of times.
#[derive(Clone)]
pub(super) struct Connector {
    endpoint: Endpoint,
    connector: credentials::Connector,
    hello: WorkHello,
    /// The scope and the API key.
    headers: Vec<(&'static str, MetadataValue<Ascii>)>,
}

pub(super) struct Connection {
    pub to: mpsc::Sender<WorkRequest>,
    pub from: Streaming<WorkResponse>,
    pub welcome: RegisterWorkerResponse,
    /// The leases that the coordinator says this session holds, if it was asked.
    pub held: Vec<LeaseStatus>,
}

#[derive(Debug)]
pub(super) enum ConnectError {
    Transient(String),
    Fatal(Error),
}

impl Connector {
    pub(super) fn new(config: &Config) -> Result<Connector, Error> {
        let url = &config.server_url;
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| Error::Setup(format!("server URL {url}: {error}")))?
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let authorization = config.connector.authorization_metadata();
        let mut headers: Vec<_> = authorization.map(|key| ("authorization", key)).into_iter().collect();
        for (header, name) in [(TENANT_HEADER, &config.tenant), (WORKSPACE_HEADER, &config.workspace)] {
            if let Some(name) = name {
                let value = name.parse();
                let value =
                    value.map_err(|_| Error::Setup(format!("{header}: {name:?} must be printable ASCII")))?;
                headers.push((header, value));
            }
        }
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let worker = RegisterWorkerRequest {
            worker_id: config.worker_id.clone(),
            capabilities: Some(WorkerCapabilities {
                max_concurrent_executions: i32::try_from(config.max_concurrent_tasks).unwrap_or(i32::MAX),
                resources: Some(ResourceLimits {
                    cpu_cores: config.resources.cpu_cores,
                    memory_bytes: bytes(config.resources.memory_bytes),
                    disk_bytes: bytes(config.resources.disk_bytes),
                }),
            }),
            platform_properties: config.platform.clone().into_iter().collect(),
            // New with each start, so that the leases of a process that died are taken back at once.
            session_id: random_id().map_err(|error| Error::Setup(error.to_string()))?,
        };
        let hello = WorkHello { worker: Some(worker), queues: config.queues.clone() };
        Ok(Connector { endpoint, connector: config.connector.clone(), hello, headers })
    }

    /// Opens a stream and waits for the welcome. On a reconnect it first asks the coordinator which leases this session
    /// holds, because tasks may have been in flight.
    pub(super) async fn connect(self, is_reconnect: bool) -> Result<Connection, ConnectError> {
        let mut client = self.client().await?;
        let mut held = Vec::new();
        if is_reconnect {
            let RegisterWorkerRequest { worker_id, session_id, .. } = self.registration();
            let heartbeat = HeartbeatRequest { worker_id, session_id, ..HeartbeatRequest::default() };
            let answer = in_time(client.report_heartbeat(self.request(heartbeat))).await?.into_inner();
            // Another session has registered under this id. To register again would end that session. If the operator
            // wants the worker to stop, the stream says so.
            if answer.should_shutdown && !answer.stopped_by_operator {
                return Err(ConnectError::Fatal(self.superseded()));
            }
            held = answer.leases;
        }
        let (to, receiver) = mpsc::channel(OUTBOX_MESSAGES);
        let hello = WorkRequest { hello: Some(self.hello.clone()), ..WorkRequest::default() };
        to.try_send(hello).map_err(|error| ConnectError::Transient(error.to_string()))?;
        let opened = client.work(self.request(ReceiverStream::new(receiver)));
        let mut from = in_time(opened).await?.into_inner();
        let first = in_time(from.message()).await?;
        let welcome = first.and_then(|message| message.welcome);
        let welcome = welcome.ok_or_else(|| ConnectError::Transient("there was no welcome".to_owned()))?;
        Ok(Connection { to, from, welcome, held })
    }

    /// Ends the session. The coordinator takes back the leases that it still holds.
    pub(super) async fn unregister(self) -> Result<(), ConnectError> {
        let RegisterWorkerRequest { worker_id, session_id, .. } = self.registration();
        let leave = UnregisterWorkerRequest { worker_id, session_id };
        let mut client = self.client().await?;
        in_time(client.unregister_worker(self.request(leave))).await.map(|_| ())
    }

    /// Checks that a coordinator would accept this worker, without registering.
    pub(super) async fn probe(&self) -> Result<(), ConnectError> {
        let worker = self.registration();
        // A poll for no tasks under an unregistered name, which only the real service refuses in this way.
        let nothing = LeaseTaskRequest { worker_id: worker.session_id, ..LeaseTaskRequest::default() };
        let mut client = self.client().await?;
        let answer = async {
            match client.lease_task(self.request(nothing)).await {
                Err(status) if status.code() == Code::FailedPrecondition => Ok(()),
                answer => answer.map(drop),
            }
        };
        in_time(answer).await
    }

    /// A channel that connects when it is used, and again after a lost connection.
    pub(super) fn connect_lazy(&self) -> Channel {
        self.connector.connect_lazy(&self.endpoint)
    }

    pub(super) fn registration(&self) -> RegisterWorkerRequest {
        self.hello.worker.clone().unwrap_or_default()
    }

    async fn client(&self) -> Result<WorkerSchedulerClient<Channel>, ConnectError> {
        let channel = self.connector.connect(&self.endpoint).await.map_err(|error| {
            // The innermost cause, such as a refused connection, is the most useful.
            let mut cause: &dyn std::error::Error = &error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            ConnectError::Transient(cause.to_string())
        })?;
        Ok(WorkerSchedulerClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES))
    }

    pub(super) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        for (header, value) in &self.headers {
            request.metadata_mut().insert(*header, value.clone());
        }
        request
    }

    pub(super) fn classify_end(&self, status: Status) -> ConnectError {
        let details = status.get_error_details();
        let reason = details.error_info().map(|info| info.reason.as_str());
        match (status.code(), reason) {
            (Code::FailedPrecondition, Some("superseded")) => ConnectError::Fatal(self.superseded()),
            _ => status.into(),
        }
    }

    pub(super) fn superseded(&self) -> Error {
        let worker_id = self.hello.worker.as_ref().map(|worker| worker.worker_id.clone()).unwrap_or_default();
        Error::Superseded { worker_id }
    }
}

impl From<Status> for ConnectError {
    fn from(status: Status) -> ConnectError {
        let why = format!("{:?}: {}", status.code(), status.message());
        match status.code() {
            Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated => {
                ConnectError::Fatal(Error::Refused(why))
            }
            // Includes UNIMPLEMENTED: a newer server may be about to replace this one.
            _ => ConnectError::Transient(why),
        }
    }
}

async fn in_time<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, ConnectError> {
    match timeout(ANSWER_TIMEOUT, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(ConnectError::Transient("the coordinator did not answer in time".to_owned())),
    }
}
