//! One stream to the coordinator, from hello to its end.

use std::time::Duration;

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
/// Longest wait for an answer that needs no waiting for tasks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// As large as the server's messages get.
const MAX_MESSAGE_BYTES: usize = 8 * 1024 * 1024;
/// One message on its way: what is said meanwhile goes together into the next.
const OUTBOX_MESSAGES: usize = 1;

/// Makes connections; they share what the configuration says.
#[derive(Clone)]
pub struct Connector {
    endpoint: Endpoint,
    hello: WorkHello,
    scope: Vec<(&'static str, MetadataValue<Ascii>)>,
}

pub struct Connection {
    pub to: mpsc::Sender<WorkRequest>,
    pub from: Streaming<WorkResponse>,
    pub welcome: RegisterWorkerResponse,
    /// What the coordinator says this session holds, if it was asked.
    pub held: Vec<LeaseStatus>,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum NoConnection {
    /// It may work later.
    Fault(String),
    /// It will not.
    Final(Error),
}

impl Connector {
    pub fn new(config: &Config) -> Result<Connector, Error> {
        let url = &config.server_url;
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| Error::Setup(format!("server URL {url}: {error}")))?
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let mut scope = Vec::new();
        for (header, name) in [(TENANT_HEADER, &config.tenant), (WORKSPACE_HEADER, &config.workspace)] {
            if let Some(name) = name {
                let value = name.parse();
                let value =
                    value.map_err(|_| Error::Setup(format!("{header}: {name:?} must be printable ASCII")))?;
                scope.push((header, value));
            }
        }
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        let worker = RegisterWorkerRequest {
            worker_id: config.worker_id.clone(),
            capabilities: Some(WorkerCapabilities {
                max_concurrent_executions: i32::try_from(config.max_concurrent_tasks).unwrap_or(i32::MAX),
                resources: Some(ResourceLimits {
                    cpu_cores: config.cpu_cores,
                    memory_bytes: bytes(config.memory_bytes),
                    disk_bytes: bytes(config.disk_bytes),
                }),
            }),
            platform_properties: config.platform.clone().into_iter().collect(),
            session_id: session_id()?,
        };
        let hello = WorkHello { worker: Some(worker), queues: config.queues.clone() };
        Ok(Connector { endpoint, hello, scope })
    }

    /// Opens a stream and is welcomed. After a lost connection the coordinator is asked first what this session
    /// holds, because tasks may have been on their way.
    pub async fn connect(self, is_again: bool) -> Result<Connection, NoConnection> {
        let mut client = self.client().await?;
        let mut held = Vec::new();
        if is_again {
            let told = in_time(client.report_heartbeat(self.request(self.beat()))).await?.into_inner();
            // To register again would take the place of whoever took this one's.
            if told.should_shutdown {
                return Err(NoConnection::Final(self.superseded()));
            }
            held = told.leases;
        }
        let (to, receiver) = mpsc::channel(OUTBOX_MESSAGES);
        let hello = WorkRequest { hello: Some(self.hello.clone()), ..WorkRequest::default() };
        to.try_send(hello).map_err(|error| NoConnection::Fault(error.to_string()))?;
        let opened = client.work(self.request(ReceiverStream::new(receiver)));
        let mut from = in_time(opened).await?.into_inner();
        let first = in_time(from.message()).await?;
        let welcome = first.and_then(|message| message.welcome);
        let welcome = welcome.ok_or_else(|| NoConnection::Fault("there was no welcome".to_owned()))?;
        Ok(Connection { to, from, welcome, held })
    }

    /// Leaves for good; the coordinator takes back whatever this session still holds.
    pub async fn unregister(self) -> Result<(), NoConnection> {
        let worker = self.hello.worker.clone().unwrap_or_default();
        let leave = UnregisterWorkerRequest { worker_id: worker.worker_id, session_id: worker.session_id };
        let mut client = self.client().await?;
        in_time(client.unregister_worker(self.request(leave))).await.map(|_| ())
    }

    /// Finds out whether there is a coordinator that would have this worker, without becoming known to it.
    pub async fn probe(&self) -> Result<(), NoConnection> {
        let worker = self.hello.worker.clone().unwrap_or_default();
        // Asks for no task, under a name that nobody registered, and so is refused in a way of the service's own.
        let nothing = LeaseTaskRequest { worker_id: worker.session_id, ..LeaseTaskRequest::default() };
        let mut client = self.client().await?;
        match timeout(ANSWER_TIMEOUT, client.lease_task(self.request(nothing))).await {
            Ok(Err(status)) if status.code() == Code::FailedPrecondition => Ok(()),
            Ok(answer) => Ok(answer.map(|_| ())?),
            Err(_) => Err(NoConnection::Fault("the coordinator did not answer in time".to_owned())),
        }
    }

    async fn client(&self) -> Result<WorkerSchedulerClient<Channel>, NoConnection> {
        let channel = self.endpoint.connect().await.map_err(|error| {
            // What it comes down to, such as a refused connection, says the most.
            let mut cause: &dyn std::error::Error = &error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            NoConnection::Fault(cause.to_string())
        })?;
        Ok(WorkerSchedulerClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES))
    }

    fn beat(&self) -> HeartbeatRequest {
        let worker = self.hello.worker.clone().unwrap_or_default();
        HeartbeatRequest {
            worker_id: worker.worker_id,
            session_id: worker.session_id,
            ..HeartbeatRequest::default()
        }
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        for (header, value) in &self.scope {
            request.metadata_mut().insert(*header, value.clone());
        }
        request
    }

    /// What the end of a stream means.
    pub fn read_end(&self, status: &Status) -> NoConnection {
        let details = status.get_error_details();
        let reason = details.error_info().map(|info| info.reason.as_str());
        let why = format!("{:?}: {}", status.code(), status.message());
        match (status.code(), reason) {
            (Code::FailedPrecondition, Some("superseded")) => NoConnection::Final(self.superseded()),
            (Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated, _) => {
                NoConnection::Final(Error::Refused(why))
            }
            // A server that is about to be replaced by one that knows the service is worth waiting for.
            _ => NoConnection::Fault(why),
        }
    }

    pub fn superseded(&self) -> Error {
        let worker_id = self.hello.worker.as_ref().map(|worker| worker.worker_id.clone()).unwrap_or_default();
        Error::Superseded { worker_id }
    }
}

impl From<Status> for NoConnection {
    fn from(status: Status) -> NoConnection {
        match status.code() {
            Code::InvalidArgument | Code::PermissionDenied | Code::Unauthenticated => {
                NoConnection::Final(Error::Refused(format!("{:?}: {}", status.code(), status.message())))
            }
            code => NoConnection::Fault(format!("{code:?}: {}", status.message())),
        }
    }
}

async fn in_time<T>(call: impl Future<Output = Result<T, Status>>) -> Result<T, NoConnection> {
    match timeout(ANSWER_TIMEOUT, call).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(NoConnection::Fault("the coordinator did not answer in time".to_owned())),
    }
}

/// Made anew with each start, so that the leases of a process that died are given back at once.
fn session_id() -> Result<String, Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| Error::Setup(format!("there is no randomness: {error}")))?;
    Ok(format!("{:032x}", u128::from_be_bytes(random)))
}
