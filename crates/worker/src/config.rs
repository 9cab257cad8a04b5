//! The configuration of a worker.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use credentials::Connector;
use execution::EXECUTION_QUEUE;

use crate::Resources;

#[derive(Clone, Debug)]
pub struct Config {
    /// The coordinator, as `http://host:port` or `https://host:port`.
    pub server_url: String,
    /// Made for `server_url`.
    pub connector: Connector,
    /// Unique, and the same after a restart.
    pub worker_id: String,
    pub tenant: Option<String>,
    /// For remote execution: the instance name.
    pub workspace: Option<String>,
    /// Tried in this order.
    pub queues: Vec<String>,
    /// Commands at the same time (S3-67).
    pub max_concurrent_tasks: usize,
    /// Longest time between two heartbeats (S3-67). Leases and the coordinator may require a shorter time.
    pub heartbeat_interval: Duration,
    /// The properties that the worker offers (S3-68).
    pub platform: BTreeMap<String, String>,
    /// What all running tasks together may request.
    pub resources: Resources,
    /// How long running commands may take after a stop signal (S3-56).
    pub drain_timeout: Duration,
    pub protocol: Protocol,
    pub actions: ActionOptions,
}

/// How a worker talks to its coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// One stream with lease ids, of Lessor.
    #[default]
    Stream,
    /// The five scheduler calls with the fields of their original definition, for other servers too.
    Plan,
}

impl Protocol {
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Stream => "stream",
            Protocol::Plan => "plan",
        }
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Protocol, String> {
        let named = [Protocol::Stream, Protocol::Plan].into_iter().find(|protocol| protocol.name() == text);
        named.ok_or_else(|| format!("{text:?} is no protocol: it is stream or plan"))
    }
}

#[derive(Clone, Debug)]
pub struct ActionOptions {
    /// The parent of work directories; on the same file system as the cache, so that inputs can be linked.
    pub work_dir: PathBuf,
    pub cache_dir: PathBuf,
    pub cache_max_bytes: u64,
    /// Disk space that stays free: with no more than this left, no command starts (W16).
    pub disk_reserve_bytes: u64,
    /// Most bytes of standard output, and of standard error.
    pub max_output_bytes: u64,
    /// Whether symbolic links may point to absolute paths or out of the input root (R49).
    pub allow_absolute_symlinks: bool,
}

impl Config {
    pub const MAX_CONCURRENT_TASKS: usize = 4;
    pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(30);
    pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);

    /// With the defaults of the configuration file.
    pub fn new(
        server_url: impl Into<String>,
        worker_id: impl Into<String>,
        actions: ActionOptions,
    ) -> Config {
        Config {
            server_url: server_url.into(),
            connector: Connector::default(),
            worker_id: worker_id.into(),
            tenant: None,
            workspace: None,
            queues: vec![EXECUTION_QUEUE.to_owned()],
            max_concurrent_tasks: Config::MAX_CONCURRENT_TASKS,
            heartbeat_interval: Config::HEARTBEAT_INTERVAL,
            platform: BTreeMap::new(),
            resources: Resources::default(),
            drain_timeout: Config::DRAIN_TIMEOUT,
            protocol: Protocol::default(),
            actions,
        }
    }
}

impl ActionOptions {
    pub const CACHE_MAX_BYTES: u64 = 10 << 30;
    pub const DISK_RESERVE_BYTES: u64 = 256 << 20;
    pub const MAX_OUTPUT_BYTES: u64 = 128 << 20;

    pub fn below(directory: impl Into<PathBuf>) -> ActionOptions {
        let directory = directory.into();
        ActionOptions {
            work_dir: directory.join("work"),
            cache_dir: directory.join("cache"),
            cache_max_bytes: ActionOptions::CACHE_MAX_BYTES,
            disk_reserve_bytes: ActionOptions::DISK_RESERVE_BYTES,
            max_output_bytes: ActionOptions::MAX_OUTPUT_BYTES,
            allow_absolute_symlinks: false,
        }
    }
}
