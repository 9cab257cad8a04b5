//! `lessor up`: everything embedded, started with one command.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use server::PushOptions;

use crate::content::{self, DEFAULT_CACHE_MIB};
use crate::serving::{
    self, DEFAULT_HISTORY_DAYS, DEFAULT_HISTORY_MIB, DEFAULT_SEGMENT_MIB, MIN_STATE_MIB, SEGMENT_MIB,
    Settings,
};
use crate::{address, logging};

#[derive(clap::Args)]
#[command(after_help = "Stop it with Ctrl-C, or kill it in any way: nothing that was accepted is lost.\n\
    Exit codes: 0 stopped, 1 could not start or its worker failed, 3 data directory refused, 4 the ledger failed while \
    running.")]
pub struct Options {
    /// Where to keep data; a missing or empty directory is initialised
    #[arg(long, value_name = "DIR", default_value = ".lessor", env = "LESSOR_DATA")]
    pub data: PathBuf,

    /// Where to listen; port 0 takes a free one and writes it to DIR/listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8980", env = "LESSOR_LISTEN", value_parser = address::parse)]
    pub listen: SocketAddr,

    /// Memory for tasks, at least 16; near it old finished tasks are forgotten early, at it submits are refused
    /// [default: half of the machine's]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(MIN_STATE_MIB..))]
    pub max_state_mib: Option<u64>,

    /// Size of one segment of the ledger, from 32 to 4096; two of them are always on disk
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_SEGMENT_MIB, value_parser = clap::value_parser!(u64).range(SEGMENT_MIB))]
    pub segment_mib: u64,

    /// Days for which finished history is kept
    #[arg(long, value_name = "DAYS", default_value_t = DEFAULT_HISTORY_DAYS)]
    pub history_days: u64,

    /// Disk space for finished history
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_HISTORY_MIB)]
    pub history_mib: u64,

    /// Disk space for the content of remote executions; what was not used for longest makes room
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_CACHE_MIB, value_parser = clap::value_parser!(u64).range(1..))]
    pub cache_mib: u64,

    /// A queue with figures of its own in /metrics, beside `exec`; may be repeated
    #[arg(long = "metrics-queue", value_name = "QUEUE", value_parser = queue)]
    pub metrics_queues: Vec<String>,

    /// Run no actions in this process: other workers do
    #[arg(long)]
    pub no_worker: bool,

    /// Drop a last batch that was written whole but does not verify. It may have been acknowledged: use this only after
    /// reading what the refusal says is at risk
    #[arg(long)]
    pub drop_unverified_tail: bool,

    /// Let push targets be on loopback and private addresses, on any port, and speak plain HTTP
    #[arg(long)]
    pub allow_private_push_targets: bool,

    /// Where push targets call back [default: where this server listens]
    #[arg(long, value_name = "URL", value_parser = callback_url)]
    pub callback_url: Option<String>,
}

fn queue(name: &str) -> Result<String, String> {
    match server::fault_of_scope_name(name) {
        Some(fault) => Err(format!("the name of a queue {fault}")),
        None => Ok(name.to_owned()),
    }
}

fn callback_url(text: &str) -> Result<String, String> {
    match server::fault_of_callback_url(text) {
        Some(fault) => Err(format!("it {fault}")),
        None => Ok(text.to_owned()),
    }
}

pub fn run(options: Options) -> Result<()> {
    let _log = logging::start("info");
    let push = PushOptions {
        allow_private_targets: options.allow_private_push_targets,
        callback_url: options.callback_url,
        ..PushOptions::default()
    };
    serving::run(Settings {
        data: options.data,
        may_create: true,
        listen: options.listen,
        max_state_mib: options.max_state_mib,
        segment_mib: options.segment_mib,
        history_days: options.history_days,
        history_mib: options.history_mib,
        drop_unverified_tail: options.drop_unverified_tail,
        queues: Vec::new(),
        server: server::Options {
            push,
            metrics: server::Metrics::new(options.metrics_queues),
            ..server::Options::default()
        },
        content: content::ContentOptions {
            cache_mib: options.cache_mib,
            ..content::ContentOptions::default()
        },
        worker: !options.no_worker,
    })
}
