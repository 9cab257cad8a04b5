//! `lessor up`: starts everything in one process, with one command.

use std::net::SocketAddr;

use anyhow::Result;
use tracing::level_filters::LevelFilter;

use crate::config::{
    Auth, Capabilities, Config, Data, MIN_FREE_MIB, Metrics, Push, Redis, Server, Storage, Tls,
};
use crate::serving::{self, Start};
use crate::worker::EmbeddedOptions;
use crate::{address, logging};

#[derive(clap::Args)]
#[command(after_help = "Stop it with Ctrl-C, or kill it in any way: nothing accepted is lost.\n\
    Exit codes: 0 stopped, 1 could not start or its worker failed, 3 data directory refused, 4 the ledger failed while \
    running.")]
pub(crate) struct Options {
    #[command(flatten)]
    data: Data,

    /// The address to listen on; port 0 takes a free port and writes it to DIR/listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8980", env = "LESSOR_LISTEN", value_parser = address::parse)]
    listen: SocketAddr,

    /// Disk space for the content of remote executions; the least recently used content is evicted
    #[arg(long, value_name = "MIB", default_value_t = Storage::default().max_mib, value_parser = clap::value_parser!(u64).range(1..))]
    cache_mib: u64,

    /// Free disk space that content never uses, such as for the ledger; below it, content is evicted
    #[arg(long, value_name = "MIB", default_value_t = Storage::default().min_free_mib, value_parser = clap::value_parser!(u64).range(MIN_FREE_MIB))]
    cache_min_free_mib: u64,

    #[command(flatten)]
    metrics: Metrics,

    /// A host name by which clients call the server on loopback, or without a credential, besides `localhost`; may be repeated
    #[arg(long = "allowed-host", value_name = "NAME")]
    allowed_hosts: Vec<String>,

    #[command(flatten)]
    tls: Tls,

    /// Let clients write to the action cache also on an address that is not loopback: everyone who can reach it decides what
    /// others get for an action
    #[arg(long)]
    allow_action_cache_updates: bool,

    /// Run no actions in this process; other workers run them
    #[arg(long, conflicts_with_all = ["backend", "allow_network", "work_dir"])]
    no_worker: bool,

    #[command(flatten)]
    worker: EmbeddedOptions,

    /// Drop a last batch that is complete but does not verify. The batch may have been acknowledged: first read what the
    /// refusal says is at risk
    #[arg(long)]
    drop_unverified_tail: bool,

    #[command(flatten)]
    push: Push,

    #[command(flatten)]
    redis: Redis,

    #[command(flatten)]
    auth: Auth,

    /// Serve an address that others can reach without authentication: everyone who can reach it can run commands
    #[arg(long)]
    insecure: bool,
}

pub(crate) fn run(options: Options) -> Result<()> {
    let _log = logging::start(LevelFilter::INFO);
    let config = Config {
        server: Server {
            address: options.listen,
            allowed_hosts: options.allowed_hosts,
            tls: options.tls,
            ..Server::default()
        },
        data: options.data,
        storage: Storage {
            max_mib: options.cache_mib,
            min_free_mib: options.cache_min_free_mib,
            ..Storage::default()
        },
        push: options.push,
        metrics: options.metrics,
        auth: options.auth,
        redis: options.redis,
        capabilities: Capabilities {
            action_cache_update_enabled: options.allow_action_cache_updates.then_some(true),
            ..Capabilities::default()
        },
        ..Config::default()
    };
    let drop_unverified_tail = options.drop_unverified_tail;
    let worker = (!options.no_worker).then_some(options.worker);
    let insecure = options.insecure;
    serving::run(
        config,
        Start {
            may_create: true,
            drop_unverified_tail,
            queues: Vec::new(),
            worker,
            insecure,
            replaces: false,
        },
    )
}
