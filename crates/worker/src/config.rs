//! What a worker is told by its operator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use execution::EXECUTION_QUEUE;

#[derive(Clone, Debug)]
pub struct Config {
    /// The coordinator, as `http://host:port`.
    pub server_url: String,
    /// The same again after a restart of the worker, and of no other worker.
    pub worker_id: String,
    pub tenant: Option<String>,
    /// For remote execution: the instance name.
    pub workspace: Option<String>,
    /// Tried in this order.
    pub queues: Vec<String>,
    /// How many commands run at the same time (S3-67).
    pub max_concurrent_tasks: usize,
    /// Longest time between two heartbeats (S3-67). Leases, and a coordinator that asks for more, make it shorter.
    pub heartbeat_interval: Duration,
    /// What the worker offers (S3-68).
    pub platform: BTreeMap<String, String>,
    /// What the tasks that run at one time may ask for together; 0 when it is not counted.
    pub cpu_cores: f64,
    pub memory_bytes: u64,
    pub disk_bytes: u64,
    /// How long running work may go on once the worker is told to stop (S3-56).
    pub drain_timeout: Duration,
    pub actions: ActionOptions,
}

/// How actions are run, whoever asks for them.
#[derive(Clone, Debug)]
pub struct ActionOptions {
    /// Work directories are made below; on the same file system as the cache, so that inputs can be linked.
    pub work_dir: PathBuf,
    /// Contents that were fetched once stay here.
    pub cache_dir: PathBuf,
    pub cache_max_bytes: u64,
    /// Disk space that is never counted on: with no more than this left, nothing is begun (W16).
    pub disk_reserve_bytes: u64,
    /// Most that is kept of each of standard output and standard error.
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
            worker_id: worker_id.into(),
            tenant: None,
            workspace: None,
            queues: vec![EXECUTION_QUEUE.to_owned()],
            max_concurrent_tasks: Config::MAX_CONCURRENT_TASKS,
            heartbeat_interval: Config::HEARTBEAT_INTERVAL,
            platform: BTreeMap::new(),
            cpu_cores: 0.0,
            memory_bytes: 0,
            disk_bytes: 0,
            drain_timeout: Config::DRAIN_TIMEOUT,
            actions,
        }
    }
}

impl ActionOptions {
    pub const CACHE_MAX_BYTES: u64 = 10 << 30;
    pub const DISK_RESERVE_BYTES: u64 = 256 << 20;
    pub const MAX_OUTPUT_BYTES: u64 = 128 << 20;

    /// Everything below one directory.
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
