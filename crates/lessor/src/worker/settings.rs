//! From what an operator says, in a file and by flags, to what a worker is told. A flag wins over the file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use worker::cas::{GrpcCas, GrpcCasOptions};
use worker::executors::{Backend, DockerOptions, ExecutorOptions, Limits};
use worker::{ActionOptions, Config, Disk};

use super::file::{Worker, WorkerFile};
use super::worker_id;
use crate::client::connection::parse_grpc_url;
use crate::config::file;
use crate::memory;

const MIB: u64 = 1 << 20;

#[derive(clap::Args)]
pub(super) struct Flags {
    /// The worker's configuration, in TOML; `lessor check-config FILE` says what it comes to
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// The coordinator [default: http://127.0.0.1:8980]
    #[arg(long, value_name = "URL", env = "LESSOR_URL", value_parser = parse_grpc_url)]
    server_url: Option<String>,

    /// The content store [default: the coordinator's]
    #[arg(long, value_name = "URL", value_parser = parse_grpc_url)]
    cas_url: Option<String>,

    /// Where commands run: host, sandbox, docker, or auto for the sandbox where it works [default: host]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<Backend>,

    /// A queue to serve, again for more, tried in this order [default: exec]
    #[arg(long = "queue", value_name = "NAME")]
    queues: Vec<String>,

    /// The worker's name, the same at every start [default: one that is made and kept in the work directory]
    #[arg(long, value_name = "NAME")]
    id: Option<String>,

    /// Where commands run and their inputs are cached [default: .lessor-worker]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<PathBuf>,

    /// Commands at one time [default: 4]
    #[arg(long, value_name = "N")]
    slots: Option<u64>,

    /// Something that this worker offers, beside its OSFamily and ISA; again for more
    #[arg(long = "platform", value_name = "NAME=VALUE", value_parser = pair)]
    platform: Vec<(String, String)>,

    /// The instance that it works for [default: that of clients which name none]
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,

    /// How long running commands may take once it is told to stop [default: 300]
    #[arg(long, value_name = "SECONDS")]
    drain_seconds: Option<u64>,
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}

impl Flags {
    /// The file, and what the flags say in its place.
    pub(super) fn worker(self) -> Result<Worker> {
        let mut worker = match &self.config {
            Some(path) => file::read::<WorkerFile>(path)?.worker,
            None => Worker::default(),
        };
        set(&mut worker.server_url, self.server_url);
        set(&mut worker.max_concurrent_tasks, self.slots);
        set(&mut worker.instance_name, self.instance);
        set(&mut worker.drain_timeout_seconds, self.drain_seconds);
        set(&mut worker.host.work_dir, self.work_dir);
        set(&mut worker.queues, Some(self.queues).filter(|queues| !queues.is_empty()));
        worker.cas_url = self.cas_url.or(worker.cas_url);
        worker.worker_id = self.id.or(worker.worker_id);
        if let Some(backend) = self.backend {
            worker.backend = backend.to_string();
            worker.host.use_sandbox = false;
        }
        worker.platform.extend(self.platform);
        file::check(WorkerFile { worker }, "the command line").map(|file| file.worker)
    }
}

fn set<T>(value: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *value = said;
    }
}

/// A worker, ready to start.
pub(super) struct Settings {
    pub config: Config,
    pub executor: ExecutorOptions,
    pub cas_url: String,
}

impl Settings {
    /// What the worker is told. One without a name gets one, which is kept in its work directory.
    pub(super) fn of(worker: Worker) -> Result<Settings> {
        let directory = absolute(&worker.host.work_dir)?;
        check_place(&directory)?;
        let id = match &worker.worker_id {
            Some(id) => id.clone(),
            None => worker_id::load_or_create(&directory, &worker_id::host_name())?,
        };
        Settings::named(worker, id, &directory)
    }

    /// The same without a trace, for who only looks.
    pub(super) fn to_look_at(worker: Worker) -> Result<Settings> {
        let directory = absolute(&worker.host.work_dir)?;
        check_place(&directory)?;
        let known =
            worker.worker_id.clone().map_or_else(|| worker_id::known(&directory), |id| Ok(Some(id)))?;
        Settings::named(worker, known.unwrap_or_else(worker_id::host_name), &directory)
    }

    fn named(worker: Worker, id: String, directory: &Path) -> Result<Settings> {
        let backend = worker.backend().map_err(anyhow::Error::msg)?;
        let actions = ActionOptions {
            allow_absolute_symlinks: true,
            cache_max_bytes: worker.cache_mib * MIB,
            disk_reserve_bytes: worker.disk_reserve_mib * MIB,
            ..ActionOptions::below(directory)
        };
        let executor = executor(&worker, backend, &id, &actions.work_dir)?;
        let url = |text: &str| parse_grpc_url(text).map_err(anyhow::Error::msg);
        let server_url = url(&worker.server_url)?;
        let cas_url = worker.cas_url.as_deref().map(url).transpose()?.unwrap_or_else(|| server_url.clone());
        let mut config = Config::new(server_url, id, actions);
        config.workspace = Some(worker.instance_name).filter(|name| !name.is_empty());
        config.queues = worker.queues;
        config.max_concurrent_tasks = usize::try_from(worker.max_concurrent_tasks).unwrap_or(usize::MAX);
        config.heartbeat_interval = Duration::from_secs(worker.heartbeat_interval_seconds);
        config.drain_timeout = Duration::from_secs(worker.drain_timeout_seconds);
        config.platform = platform();
        config.platform.extend(worker.platform);
        let has = worker.resources;
        config.cpu_cores = has.cpu_cores.unwrap_or(slots() as f64);
        config.memory_bytes = has.memory_bytes.or(memory::all_bytes().map(|bytes| bytes as u64)).unwrap_or(0);
        config.disk_bytes = has.disk_bytes.unwrap_or_else(|| disk_bytes(directory, &config));
        Ok(Settings { config, executor, cas_url })
    }

    /// The content store, which is given up on after so long.
    pub(super) fn cas(&self, patience: Option<Duration>) -> Result<Arc<GrpcCas>> {
        let default = GrpcCasOptions::default();
        let patience = patience.unwrap_or(default.patience);
        Ok(Arc::new(GrpcCas::new(&self.cas_url, &GrpcCasOptions { patience, ..default })?))
    }
}

/// Refuses a directory that belongs to somebody else: what is in a worker's way is removed.
fn check_place(directory: &Path) -> Result<()> {
    let is_ours = |name: &OsStr| {
        let name = name.to_string_lossy();
        name.starts_with(worker_id::FILE) || ["work", "cache", "lost+found"].contains(&&*name)
    };
    let has_others = match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.any(|entry| entry.is_ok_and(|entry| !is_ours(&entry.file_name()))),
        // Whoever makes it tells what is wrong with it.
        Err(_) => false,
    };
    let was_ours = [worker_id::FILE, "cache/lock"].iter().any(|ours| directory.join(ours).exists());
    anyhow::ensure!(
        was_ours || !has_others,
        "{} is not empty and is no worker's directory: give the worker one of its own with --work-dir",
        directory.display()
    );
    Ok(())
}

fn executor(worker: &Worker, backend: Backend, id: &str, work_dir: &Path) -> Result<ExecutorOptions> {
    let docker = &worker.docker;
    let limits = Limits {
        cpu_cores: worker.limits.cpu_cores,
        memory_bytes: worker.limits.memory_bytes,
        processes: worker.limits.processes,
    };
    Ok(ExecutorOptions {
        env_allow: worker.host.env_whitelist.clone(),
        user: worker.host.user.clone(),
        limits: match backend {
            Backend::Docker => Limits {
                cpu_cores: docker.cpu_limit.or(limits.cpu_cores),
                memory_bytes: docker.memory_limit.or(limits.memory_bytes),
                ..limits
            },
            _ => limits,
        },
        docker: DockerOptions {
            host: docker.host.clone(),
            image: docker.image.clone(),
            pull: docker.pull,
            network_mode: docker.network_mode.clone(),
            ulimits: docker.ulimits().map_err(anyhow::Error::msg)?,
        },
        ..ExecutorOptions::new(backend, id, work_dir)
    })
}

fn absolute(directory: &Path) -> Result<PathBuf> {
    std::path::absolute(directory).context("the work directory has no path")
}

/// What can be used of the disk now; 0, which is not counted, if that cannot be told.
fn disk_bytes(directory: &Path, config: &Config) -> u64 {
    let there = directory.ancestors().find(|directory| directory.is_dir()).unwrap_or(directory);
    Disk::new(there, config.actions.disk_reserve_bytes).usable_bytes().unwrap_or(0)
}

/// What this machine offers when nothing else is said.
fn platform() -> BTreeMap<String, String> {
    let os = if cfg!(target_os = "linux") { "linux" } else { std::env::consts::OS };
    let pairs = [("OSFamily", os), ("ISA", std::env::consts::ARCH)];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// One for each processor.
pub(super) fn slots() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}
