//! The configuration of a server: the keys of the file of `lessor serve`, which are also the flags of `lessor up`, with
//! their defaults and validation.

mod auth;
mod certificates;
mod cluster;
pub(crate) mod file;
mod issuers;
mod limits;
mod redis;
mod rights;
mod storage;
mod tls;
mod unknown;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use authority::limits::{MAX_LEASE_MS, MIN_LEASE_MS};
use authority::{QueueConfig, QueueCreation, QueueKey, Scope};
use serde::{Deserialize, Serialize};
use server::{MAX_NAMED_QUEUES, TOKEN_TTL_SECONDS};
use wire::{DEFAULT_SCOPE_NAME, MAX_WAIT_MS};

use crate::address;
pub(crate) use auth::{Auth, Mode};
pub(crate) use cluster::{Cluster, Ledger, LedgerBackend, Postgres, postgres_server};
use execution::EXECUTION_QUEUE;
use file::{Document, within};
use limits::{Limits, TenantLimits};
pub(crate) use redis::Redis;
pub(crate) use storage::{MIN_FREE_MIB, Storage};
pub(crate) use tls::Tls;

/// Smallest and largest segment: a batch must fit into a part of it.
const SEGMENT_MIB: std::ops::RangeInclusive<u64> = 32..=4_096;
/// Uploads of a worker for one lease; at most 1 PiB, because more is a mistake in the unit.
const UPLOAD_MIB: std::ops::RangeInclusive<u64> = 1..=1_024 * 1_024 * 1_024;
/// With less memory than this no useful number of tasks can wait.
const MIN_STATE_MIB: u64 = 16;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Config {
    pub server: Server,
    pub data: Data,
    pub ledger: Ledger,
    pub postgres: Postgres,
    pub cluster: Cluster,
    pub queues: Queues,
    pub storage: Storage,
    pub execution: Execution,
    pub push: Push,
    pub capabilities: Capabilities,
    pub metrics: Metrics,
    pub auth: Auth,
    pub limits: Limits,
    pub redis: Redis,
}

// Doc comments of flattened structs would replace the help text of `lessor up`.

// The metrics at /metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(default)]
pub(crate) struct Metrics {
    /// A queue with its own metrics in /metrics, besides `exec`; may be repeated
    #[arg(long = "metrics-queue", value_name = "QUEUE", value_parser = parse_queue)]
    pub queues: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Server {
    #[serde(deserialize_with = "address::deserialize")]
    pub address: SocketAddr,
    /// The workspace of remote executions; empty for the default workspace.
    pub instance_name: String,
    /// Names by which it may be called without a credential, besides its addresses and `localhost`.
    pub allowed_hosts: Vec<String>,
    pub tls: Tls,
}

// Push dispatch: tasks that are sent to the push target of their queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(default)]
pub(crate) struct Push {
    /// Allow push targets on loopback and private addresses, on any port, over plain HTTP
    #[arg(long = "allow-private-push-targets")]
    pub allow_private_targets: bool,

    /// The URL that push targets call back [default: the address that this server listens on]
    #[arg(long, value_name = "URL", value_parser = parse_callback_url)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,

    /// How long the token of a pushed task is valid if the task has no deadline, from 60 to 7200; heartbeats renew it
    #[arg(long, value_name = "SECONDS", default_value_t = Push::default().token_ttl_seconds, value_parser = clap::value_parser!(u64).range(TOKEN_TTL_SECONDS))]
    pub token_ttl_seconds: u64,
}

impl Default for Push {
    fn default() -> Push {
        Push { allow_private_targets: false, callback_url: None, token_ttl_seconds: 3_600 }
    }
}

// The ledger and its retention.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, clap::Args)]
#[serde(default)]
pub(crate) struct Data {
    /// The data directory; a missing or empty directory is initialized
    #[arg(long = "data", value_name = "DIR", default_value = ".lessor", env = "LESSOR_DATA")]
    pub dir: PathBuf,

    /// Memory for tasks, at least 16; near the limit, old finished tasks are dropped early; at the limit, submits are refused
    /// [default: half of the machine's memory]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(MIN_STATE_MIB..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_state_mib: Option<u64>,

    /// Memory for finished tasks, within the memory for tasks; beyond it, the oldest are dropped before their retention is over
    #[arg(long, value_name = "MIB", default_value_t = Data::default().max_final_mib)]
    pub max_final_mib: u64,

    /// Size of one segment of the ledger, from 32 to 4096; at least two segments are on disk
    #[arg(long, value_name = "MIB", default_value_t = Data::default().segment_mib, value_parser = clap::value_parser!(u64).range(SEGMENT_MIB))]
    pub segment_mib: u64,

    /// How much of each new segment is written in advance, at least 1; less than a whole segment is for tests: a full disk is
    /// then noticed only when a write fails, which stops the server [default: the whole segment]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preallocate_mib: Option<u64>,

    /// Days to keep the history of finished tasks
    #[arg(long, value_name = "DAYS", default_value_t = Data::default().history_days)]
    pub history_days: u64,

    /// Disk space for the history of finished tasks
    #[arg(long, value_name = "MIB", default_value_t = Data::default().history_mib)]
    pub history_mib: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Queues {
    /// Whether a submit may create its queue.
    pub create: CreateQueues,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CreateQueues {
    #[default]
    Any,
    Configured,
}

impl From<CreateQueues> for QueueCreation {
    fn from(create: CreateQueues) -> QueueCreation {
        match create {
            CreateQueues::Any => QueueCreation::Any,
            CreateQueues::Configured => QueueCreation::Configured,
        }
    }
}

fn parse_queue(name: &str) -> Result<String, String> {
    server::fault_of_scope_name(name)
        .map_or(Ok(name.to_owned()), |fault| Err(format!("the name of a queue {fault}")))
}

fn parse_callback_url(text: &str) -> Result<String, String> {
    server::fault_of_callback_url(text).map_or(Ok(text.to_owned()), |fault| Err(format!("the URL {fault}")))
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Execution {
    pub backend: ExecutionBackend,
    pub scheduler: Scheduler,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ExecutionBackend {
    #[default]
    Scheduler,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Scheduler {
    /// How long an execution's lease lives without a heartbeat.
    pub lease_duration_seconds: u64,
    /// A worker without a heartbeat for so long gets no new work until it registers again.
    pub heartbeat_timeout_seconds: u64,
    /// The longest long poll of a worker.
    pub long_poll_timeout_seconds: u64,
    /// The maximum number of executions that wait or run.
    pub max_queue_size: u64,
    /// How long an execution may wait while no registered worker could run it.
    pub worker_grace_seconds: u64,
    /// How much a worker may upload for each lease that it holds, if its key has no other role for content.
    pub max_upload_mib_per_lease: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Capabilities {
    pub exec_enabled: bool,
    /// Whether clients may write to the action cache; by default only on loopback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action_cache_update_enabled: Option<bool>,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 8980)),
            instance_name: String::new(),
            allowed_hosts: Vec::new(),
            tls: Tls::default(),
        }
    }
}

impl Default for Data {
    fn default() -> Data {
        Data {
            dir: PathBuf::from(".lessor"),
            max_state_mib: None,
            max_final_mib: 512,
            segment_mib: 64,
            preallocate_mib: None,
            history_days: 14,
            history_mib: 10 * 1_024,
        }
    }
}

impl Default for Scheduler {
    fn default() -> Scheduler {
        Scheduler {
            lease_duration_seconds: 300,
            heartbeat_timeout_seconds: 120,
            long_poll_timeout_seconds: 30,
            max_queue_size: 10_000,
            worker_grace_seconds: 60,
            max_upload_mib_per_lease: 16 * 1_024,
        }
    }
}

impl Default for Capabilities {
    fn default() -> Capabilities {
        Capabilities { exec_enabled: true, action_cache_update_enabled: None }
    }
}

impl Config {
    pub(crate) fn read(path: &Path) -> Result<Config> {
        file::read(path)
    }

    fn workspace(&self) -> &str {
        match self.server.instance_name.as_str() {
            "" => DEFAULT_SCOPE_NAME,
            name => name,
        }
    }

    /// The queue of remote executions, whose configuration is replaced at every start.
    pub(crate) fn exec_queue(&self) -> (QueueKey, QueueConfig) {
        let scope = Scope { tenant: DEFAULT_SCOPE_NAME.into(), workspace: self.workspace().into() };
        let scheduler = &self.execution.scheduler;
        let config = QueueConfig {
            lease_ms: Some(scheduler.lease_duration_seconds.saturating_mul(1_000)),
            max_queue_size: Some(scheduler.max_queue_size),
            ..QueueConfig::default()
        };
        (QueueKey { scope, name: EXECUTION_QUEUE.into() }, config)
    }

    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        let checked = self.check_access(false, false).unwrap_or_else(|error| Some(error.to_string()));
        checked.into_iter()
    }

    pub(crate) fn scheduler(&self) -> server::Scheduler {
        server::Scheduler {
            heartbeat_timeout: Duration::from_secs(self.execution.scheduler.heartbeat_timeout_seconds),
            long_poll_timeout: Duration::from_secs(self.execution.scheduler.long_poll_timeout_seconds),
        }
    }

    pub(crate) fn reapi(&self) -> server::reapi::Settings {
        server::reapi::Settings {
            exec_enabled: self.capabilities.exec_enabled,
            allow_uploads: self
                .capabilities
                .action_cache_update_enabled
                .unwrap_or_else(|| self.server.address.ip().is_loopback() || self.auth.mode == Mode::Keys),
            is_content_shared: self.storage.url.is_some(),
            worker_grace: Duration::from_secs(self.execution.scheduler.worker_grace_seconds),
            max_upload_bytes_per_lease: self.execution.scheduler.max_upload_mib_per_lease << 20,
            ..server::reapi::Settings::default()
        }
    }
}

impl Document for Config {
    fn with_every_key() -> Config {
        let mut config = Config::default();
        config.data.max_state_mib = Some(MIN_STATE_MIB);
        config.data.preallocate_mib = Some(1);
        config.auth.admin_key_file = Some(PathBuf::new());
        config.auth.issuers = vec![issuers::Issuer::with_every_key()];
        config.auth.certificates = vec![certificates::Rule::with_every_key()];
        config.limits.tenant = TenantLimits::with_every_key();
        config.postgres = Postgres::with_every_key();
        config.cluster = Cluster::with_every_key();
        config.push.callback_url = Some(String::new());
        config.redis = Redis::with_every_key();
        config.server.tls = Tls::with_every_key();
        config.capabilities.action_cache_update_enabled = Some(true);
        config.storage = Storage::with_every_key();
        config
    }

    fn faults(&self) -> Vec<String> {
        let scheduler = &self.execution.scheduler;
        let state_mib = self.data.max_state_mib.unwrap_or(MIN_STATE_MIB);
        let in_scheduler = |key, value, range| within(&format!("execution.scheduler.{key}"), value, range);
        let lease_seconds = MIN_LEASE_MS.div_ceil(1_000)..=MAX_LEASE_MS / 1_000;
        let poll_seconds = 1..=MAX_WAIT_MS / 1_000;
        let mut faults: Vec<String> = [
            within("data.max_state_mib", state_mib, MIN_STATE_MIB..=u64::MAX),
            within("data.segment_mib", self.data.segment_mib, SEGMENT_MIB),
            within("data.preallocate_mib", self.data.preallocate_mib.unwrap_or(1), 1..=u64::MAX),
            within("push.token_ttl_seconds", self.push.token_ttl_seconds, TOKEN_TTL_SECONDS),
            in_scheduler("heartbeat_timeout_seconds", scheduler.heartbeat_timeout_seconds, 1..=86_400),
            in_scheduler("long_poll_timeout_seconds", scheduler.long_poll_timeout_seconds, poll_seconds),
            in_scheduler("lease_duration_seconds", scheduler.lease_duration_seconds, lease_seconds),
            in_scheduler("max_queue_size", scheduler.max_queue_size, 1..=u64::MAX),
            in_scheduler("worker_grace_seconds", scheduler.worker_grace_seconds, 0..=86_400),
            in_scheduler("max_upload_mib_per_lease", scheduler.max_upload_mib_per_lease, UPLOAD_MIB),
        ]
        .into_iter()
        .flatten()
        .collect();
        faults.extend(self.auth.faults(&self.server.tls));
        faults.extend(self.ledger_faults());
        faults.extend(self.limits.faults());
        faults.extend(self.redis.faults());
        faults.extend(self.server.tls.faults());
        faults.extend(self.storage.faults());
        if self.metrics.queues.len() >= MAX_NAMED_QUEUES {
            faults.push(format!("metrics.queues must name fewer than {MAX_NAMED_QUEUES} queues"));
        }
        if self.data.dir.as_os_str().is_empty() {
            faults.push("data.dir is empty; name a directory".to_owned());
        }
        let bad_host = |host: &&String| host.is_empty() || host.contains([':', '/', '*', ' ']);
        faults.extend(self.server.allowed_hosts.iter().filter(bad_host).map(|host| {
            format!("server.allowed_hosts: {host:?} is not the name of a host, such as build.example.com")
        }));
        let queues = self.metrics.queues.iter();
        faults.extend(queues.filter_map(|queue| {
            server::fault_of_scope_name(queue).map(|what| format!("metrics.queues: {queue:?} {what}"))
        }));
        let (_, config) = self.exec_queue();
        // Errors above name the keys of the file; this check finds what they do not cover.
        let queue_fault = config
            .check(&server::reapi::queue_defaults().of(EXECUTION_QUEUE))
            .err()
            .filter(|_| faults.is_empty());
        faults.extend(queue_fault.map(|what| format!("execution.scheduler: {what}")));
        faults.extend(
            server::fault_of_scope_name(self.workspace()).map(|what| format!("server.instance_name {what}")),
        );
        let callback_url = self.push.callback_url.as_deref();
        faults.extend(
            callback_url
                .and_then(server::fault_of_callback_url)
                .map(|what| format!("push.callback_url {what}")),
        );
        faults
    }
}

#[cfg(test)]
mod tests;
