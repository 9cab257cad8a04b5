//! The configuration file of a worker: its keys, their defaults and their validation (S3-67 to S3-70).

use std::collections::BTreeMap;
use std::path::PathBuf;

use execution::EXECUTION_QUEUE;
use serde::{Deserialize, Serialize};
use worker::executors::{Backend, DockerOptions, ExecutorOptions, Limits};
use worker::{ActionOptions, Config, Protocol};

use crate::client::connection::parse_url;
use crate::config::file::{Document, within};

const SLOTS: std::ops::RangeInclusive<u64> = 1..=500;
const HEARTBEAT_SECONDS: std::ops::RangeInclusive<u64> = 1..=3_600;
pub(super) const MIB: u64 = 1 << 20;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WorkerFile {
    pub worker: Worker,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Worker {
    /// By default generated once and stored in the work directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    pub server_url: String,
    /// By default the coordinator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cas_url: Option<String>,
    /// The CA of the servers' certificates, in PEM; by default those that the machine trusts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    /// The worker's certificate for servers that ask for one, and its key, in PEM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
    /// The file with the worker's API key; without it, the key in LESSOR_API_KEY is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    pub max_concurrent_tasks: u64,
    pub heartbeat_interval_seconds: u64,
    pub backend: String,
    /// How the worker talks to the coordinator: `stream`, or `plan` for servers that know only the five scheduler calls.
    pub protocol: String,
    /// Tried in this order.
    pub queues: Vec<String>,
    /// The instance of remote execution, and the workspace of other queues; empty for all instances.
    pub instance_name: String,
    pub drain_timeout_seconds: u64,
    /// Disk space for cached inputs.
    pub cache_mib: u64,
    /// Disk space that stays free: with less than this, no command starts.
    pub disk_reserve_mib: u64,
    /// The properties that the worker offers, besides its OSFamily and ISA.
    pub platform: BTreeMap<String, String>,
    pub host: Host,
    pub docker: DockerOptions,
    pub limits: Limits,
    pub resources: Resources,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Host {
    pub work_dir: PathBuf,
    /// The same as the backend `sandbox`.
    pub use_sandbox: bool,
    pub env_whitelist: Vec<String>,
    /// The user that commands run as, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}

/// What all running tasks together may request; by default the machine's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Resources {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_cores: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_bytes: Option<u64>,
}

impl Default for Worker {
    fn default() -> Worker {
        Worker {
            worker_id: None,
            server_url: "http://127.0.0.1:8980".to_owned(),
            cas_url: None,
            ca_file: None,
            client_certificate: None,
            client_key: None,
            api_key_file: None,
            max_concurrent_tasks: Config::MAX_CONCURRENT_TASKS as u64,
            heartbeat_interval_seconds: Config::HEARTBEAT_INTERVAL.as_secs(),
            backend: Backend::default().to_string(),
            protocol: Protocol::default().to_string(),
            queues: vec![EXECUTION_QUEUE.to_owned()],
            instance_name: String::new(),
            drain_timeout_seconds: Config::DRAIN_TIMEOUT.as_secs(),
            cache_mib: ActionOptions::CACHE_MAX_BYTES / MIB,
            disk_reserve_mib: ActionOptions::DISK_RESERVE_BYTES / MIB,
            platform: BTreeMap::new(),
            host: Host::default(),
            docker: DockerOptions::default(),
            limits: Limits::default(),
            resources: Resources::default(),
        }
    }
}

impl Default for Host {
    fn default() -> Host {
        Host {
            work_dir: PathBuf::from(".lessor-worker"),
            use_sandbox: false,
            env_whitelist: ExecutorOptions::ENV_ALLOW.map(str::to_owned).to_vec(),
            user: None,
        }
    }
}

impl Worker {
    /// The backend. `use_sandbox` with the backend host means the sandbox.
    pub(crate) fn backend(&self) -> Result<Backend, String> {
        let backend: Backend = self.backend.parse().map_err(|error| format!("worker.backend: {error}"))?;
        match (backend, self.host.use_sandbox) {
            (Backend::Host, true) => Ok(Backend::Sandbox),
            (Backend::Docker, true) => {
                Err("worker.host.use_sandbox is for the backend host, but worker.backend is docker"
                    .to_owned())
            }
            _ => Ok(backend),
        }
    }
}

impl Worker {
    /// The protocol. The five scheduler calls name no queue.
    pub(crate) fn protocol(&self) -> Result<Protocol, String> {
        let protocol: Protocol =
            self.protocol.parse().map_err(|error| format!("worker.protocol: {error}"))?;
        match protocol {
            Protocol::Plan if self.queues != [EXECUTION_QUEUE] => {
                Err(format!("worker.queues: the protocol plan serves only the queue {EXECUTION_QUEUE}"))
            }
            protocol => Ok(protocol),
        }
    }
}

impl Document for WorkerFile {
    fn with_every_key() -> WorkerFile {
        let limits = Limits { cpu_cores: Some(1.0), memory_bytes: Some(1), processes: Some(1) };
        let resources = Resources { cpu_cores: Some(1.0), memory_bytes: Some(1), disk_bytes: Some(1) };
        let text = || Some(String::new());
        let path = || Some(PathBuf::new());
        let mut worker =
            Worker { worker_id: text(), cas_url: text(), limits, resources, ..Worker::default() };
        (worker.ca_file, worker.api_key_file) = (path(), path());
        (worker.client_certificate, worker.client_key) = (path(), path());
        worker.host.user = text();
        let docker = &mut worker.docker;
        (docker.host, docker.image) = (text(), text());
        (docker.cpu_limit, docker.memory_limit) = (Some(1.0), Some(1));
        WorkerFile { worker }
    }

    fn faults(&self) -> Vec<String> {
        let worker = &self.worker;
        let positive = |key: &str, value: Option<f64>| {
            value
                .filter(|value| !value.is_finite() || *value <= 0.0)
                .map(|value| format!("worker.{key} must be more than 0, but is {value}"))
        };
        let at_least = |key: &str, value: Option<u64>, low: u64| {
            value.and_then(|value| within(&format!("worker.{key}"), value, low..=u64::MAX))
        };
        let named = |key: &str, name: &str| {
            server::fault_of_scope_name(name).map(|what| format!("worker.{key}: {name:?} {what}"))
        };
        let url = |key: &str, url: &str| {
            parse_url(url)
                .err()
                .map(|what| format!("worker.{key}: {url:?} is no address of a server: {what}"))
        };
        let ulimit = |text: String| {
            format!("worker.docker.ulimits: {text:?} is not NAME=SOFT:HARD, such as nofile=1024:4096")
        };
        let queues = worker.queues.iter().map(|queue| named("queues", queue));
        let instance = Some(worker.instance_name.as_str()).filter(|name| !name.is_empty());
        [
            within("worker.max_concurrent_tasks", worker.max_concurrent_tasks, SLOTS),
            within("worker.heartbeat_interval_seconds", worker.heartbeat_interval_seconds, HEARTBEAT_SECONDS),
            within("worker.cache_mib", worker.cache_mib, 1..=u64::MAX / MIB),
            within("worker.disk_reserve_mib", worker.disk_reserve_mib, 0..=u64::MAX / MIB),
            url("server_url", &worker.server_url),
            worker.cas_url.as_deref().and_then(|text| url("cas_url", text)),
            (worker.client_certificate.is_some() != worker.client_key.is_some()).then(|| {
                "worker.client_certificate and worker.client_key belong together: set both".to_owned()
            }),
            worker.backend().err(),
            worker.protocol().err(),
            worker.docker.parse_ulimits().err().map(ulimit),
            worker.host.work_dir.as_os_str().is_empty().then(|| "worker.host.work_dir is empty".to_owned()),
            worker.queues.is_empty().then(|| "worker.queues names no queue".to_owned()),
            instance.and_then(|name| named("instance_name", name)),
            worker.worker_id.as_deref().and_then(|id| named("worker_id", id)),
            positive("docker.cpu_limit", worker.docker.cpu_limit),
            positive("limits.cpu_cores", worker.limits.cpu_cores),
            positive("resources.cpu_cores", worker.resources.cpu_cores),
            at_least("docker.memory_limit", worker.docker.memory_limit, 1),
            at_least("limits.memory_bytes", worker.limits.memory_bytes, 1),
            at_least("limits.processes", worker.limits.processes.map(u64::from), 1),
            at_least("resources.memory_bytes", worker.resources.memory_bytes, 1),
            at_least("resources.disk_bytes", worker.resources.disk_bytes, 1),
        ]
        .into_iter()
        .chain(queues)
        .flatten()
        .collect()
    }
}

#[cfg(test)]
mod tests;
