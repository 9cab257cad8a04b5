//! The settings of a worker from its file and its flags. A flag overrides the file.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use credentials::Credentials;
use reapi_client::Client;
use worker::executors::{Backend, ExecutorOptions};
use worker::{ActionOptions, Config, Disk, Protocol, Resources};

use super::file::{MIB, Worker, WorkerFile};
use super::worker_id;
use crate::client::connection::{CredentialOptions, connector, parse_grpc_url, parse_pair};
use crate::config::file;
use crate::machine;

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

    #[command(flatten)]
    credentials: CredentialOptions,

    /// Where commands run: host, sandbox, docker, or auto for the sandbox where it works [default: host]
    #[arg(long, value_name = "BACKEND")]
    backend: Option<Backend>,

    /// How it talks to the coordinator: stream, or plan for servers that know only the five scheduler calls [default:
    /// stream]
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<Protocol>,

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
    #[arg(long = "platform", value_name = "NAME=VALUE", value_parser = parse_pair)]
    platform: Vec<(String, String)>,

    /// The instance that it works for [default: all of them]
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,

    /// How long running commands may take once it is told to stop [default: 300]
    #[arg(long, value_name = "SECONDS")]
    drain_seconds: Option<u64>,
}

impl Flags {
    pub(super) fn worker(self) -> Result<Worker> {
        let mut worker = match &self.config {
            Some(path) => file::read::<WorkerFile>(path)?.worker,
            None => Worker::default(),
        };
        set(&mut worker.server_url, self.server_url);
        set(&mut worker.protocol, self.protocol.map(|protocol| protocol.to_string()));
        set(&mut worker.max_concurrent_tasks, self.slots);
        set(&mut worker.instance_name, self.instance);
        set(&mut worker.drain_timeout_seconds, self.drain_seconds);
        set(&mut worker.host.work_dir, self.work_dir);
        set(&mut worker.queues, Some(self.queues).filter(|queues| !queues.is_empty()));
        worker.cas_url = self.cas_url.or(worker.cas_url);
        worker.worker_id = self.id.or(worker.worker_id);
        let CredentialOptions { ca_file, client_certificate, client_key, api_key_file } = self.credentials;
        worker.ca_file = ca_file.or(worker.ca_file);
        worker.client_certificate = client_certificate.or(worker.client_certificate);
        worker.client_key = client_key.or(worker.client_key);
        worker.api_key_file = api_key_file.or(worker.api_key_file);
        if let Some(backend) = self.backend {
            worker.backend = backend.to_string();
            worker.host.use_sandbox = false;
        }
        worker.platform.extend(self.platform);
        file::check(WorkerFile { worker }, "the command line").map(|file| file.worker)
    }
}

fn set<T>(value: &mut T, flag: Option<T>) {
    if let Some(flag) = flag {
        *value = flag;
    }
}

pub(super) struct Settings {
    pub config: Config,
    pub executor: ExecutorOptions,
    pub cas_url: String,
    pub credentials: Credentials,
}

impl Settings {
    /// A worker without an id gets one, which is stored in its work directory.
    pub(super) fn of(worker: Worker) -> Result<Settings> {
        Settings::new(worker, |directory| worker_id::load_or_create(directory, &worker_id::host_name()))
    }

    /// The same without writing anything.
    pub(super) fn without_writing(worker: Worker) -> Result<Settings> {
        Settings::new(worker, |directory| {
            Ok(worker_id::known(directory)?.unwrap_or_else(worker_id::host_name))
        })
    }

    fn new(worker: Worker, default_id: impl FnOnce(&Path) -> Result<String>) -> Result<Settings> {
        let directory =
            &std::path::absolute(&worker.host.work_dir).context("the work directory has no path")?;
        check_is_own(directory)?;
        let id = worker.worker_id.clone().map_or_else(|| default_id(directory), Ok)?;
        let backend = worker.backend().map_err(anyhow::Error::msg)?;
        let protocol = worker.protocol().map_err(anyhow::Error::msg)?;
        let actions = ActionOptions {
            allow_absolute_symlinks: true,
            cache_max_bytes: worker.cache_mib * MIB,
            disk_reserve_bytes: worker.disk_reserve_mib * MIB,
            ..ActionOptions::below(directory)
        };
        let executor = ExecutorOptions {
            env_allow: worker.host.env_whitelist,
            user: worker.host.user,
            limits: worker.limits,
            docker: worker.docker,
            ..ExecutorOptions::new(backend, &*id, &actions.work_dir)
        };
        let url = |text: &str| parse_grpc_url(text).map_err(anyhow::Error::msg);
        let server_url = url(&worker.server_url)?;
        let cas_url = worker.cas_url.as_deref().map(url).transpose()?.unwrap_or_else(|| server_url.clone());
        let credentials = Credentials {
            ca_file: worker.ca_file,
            client_certificate: worker.client_certificate,
            client_key: worker.client_key,
            api_key_file: worker.api_key_file,
            api_key: None,
        };
        let mut config = Config::new(server_url, id, actions);
        config.workspace = Some(worker.instance_name).filter(|name| !name.is_empty());
        config.queues = worker.queues;
        config.protocol = protocol;
        config.max_concurrent_tasks = usize::try_from(worker.max_concurrent_tasks).unwrap_or(usize::MAX);
        config.heartbeat_interval = Duration::from_secs(worker.heartbeat_interval_seconds);
        config.drain_timeout = Duration::from_secs(worker.drain_timeout_seconds);
        config.platform = platform();
        config.platform.extend(worker.platform);
        let (has, memory_bytes) = (worker.resources, machine::memory_bytes().map(|bytes| bytes as u64));
        config.resources = Resources {
            cpu_cores: has.cpu_cores.unwrap_or(slots() as f64),
            memory_bytes: has.memory_bytes.or(memory_bytes).unwrap_or(0),
            disk_bytes: has.disk_bytes.unwrap_or_else(|| disk_bytes(directory, &config)),
        };
        Ok(Settings { config, executor, cas_url, credentials })
    }

    /// Reads the credentials, with what the environment has.
    pub(super) fn with_credentials(mut self) -> Result<Settings> {
        self.credentials = self.credentials.or_env()?;
        self.config.connector = connector(&self.config.server_url, &self.credentials)?;
        Ok(self)
    }

    /// The content store. A given `patience` replaces the default.
    pub(super) fn cas(&self, patience: Option<Duration>) -> Result<Arc<Client>> {
        let default = reapi_client::Options::default();
        let patience = patience.unwrap_or(default.patience);
        let connector = connector(&self.cas_url, &self.credentials)?;
        Ok(Arc::new(Client::new(&self.cas_url, &reapi_client::Options { patience, connector, ..default })?))
    }
}

/// Refuses a directory with other files, because a worker removes files in its directory.
fn check_is_own(directory: &Path) -> Result<()> {
    let is_ours = |name: &OsStr| {
        let name = name.to_string_lossy();
        name.starts_with(worker_id::FILE) || ["work", "cache", "lost+found"].contains(&&*name)
    };
    let has_others = match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.any(|entry| entry.is_ok_and(|entry| !is_ours(&entry.file_name()))),
        // Creating the directory reports the error.
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

/// The usable disk space; 0, which means unlimited, if it is unknown.
fn disk_bytes(directory: &Path, config: &Config) -> u64 {
    let there = directory.ancestors().find(|directory| directory.is_dir()).unwrap_or(directory);
    Disk::new(there, config.actions.disk_reserve_bytes).usable_bytes().unwrap_or(0)
}

/// The default properties of this machine.
fn platform() -> BTreeMap<String, String> {
    let os = if cfg!(target_os = "linux") { "linux" } else { std::env::consts::OS };
    [("OSFamily", os), ("ISA", std::env::consts::ARCH)]
        .map(|(name, value)| (name.into(), value.into()))
        .into()
}

pub(super) fn slots() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}
