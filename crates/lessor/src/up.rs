//! `lessor up`: starts everything in one process, with one command.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use server::PushOptions;
use tracing::level_filters::LevelFilter;

use crate::content::{self, DEFAULT_CACHE_MIB};
use crate::serving::{
    self, DEFAULT_HISTORY_DAYS, DEFAULT_HISTORY_MIB, DEFAULT_SEGMENT_MIB, MIN_STATE_MIB, SEGMENT_MIB,
    Settings,
};
use crate::{address, logging};

#[derive(clap::Args)]
#[command(after_help = "Stop it with Ctrl-C, or kill it in any way: nothing accepted is lost.\n\
    Exit codes: 0 stopped, 1 could not start or its worker failed, 3 data directory refused, 4 the ledger failed while \
    running.")]
pub(crate) struct Options {
    /// The data directory; a missing or empty directory is initialized
    #[arg(long, value_name = "DIR", default_value = ".lessor", env = "LESSOR_DATA")]
    pub data: PathBuf,

    /// The address to listen on; port 0 takes a free port and writes it to DIR/listen
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8980", env = "LESSOR_LISTEN", value_parser = address::parse)]
    pub listen: SocketAddr,

    /// Memory for tasks, at least 16; near the limit, old finished tasks are dropped early; at the limit, submits are refused
    /// [default: half of the machine's memory]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(MIN_STATE_MIB..))]
    pub max_state_mib: Option<u64>,

    /// Size of one segment of the ledger, from 32 to 4096; at least two segments are on disk
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_SEGMENT_MIB, value_parser = clap::value_parser!(u64).range(SEGMENT_MIB))]
    pub segment_mib: u64,

    /// Days to keep the history of finished tasks
    #[arg(long, value_name = "DAYS", default_value_t = DEFAULT_HISTORY_DAYS)]
    pub history_days: u64,

    /// Disk space for the history of finished tasks
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_HISTORY_MIB)]
    pub history_mib: u64,

    /// Disk space for the content of remote executions; the least recently used content is evicted
    #[arg(long, value_name = "MIB", default_value_t = DEFAULT_CACHE_MIB, value_parser = clap::value_parser!(u64).range(1..))]
    pub cache_mib: u64,

    /// A queue with its own metrics in /metrics, besides `exec`; may be repeated
    #[arg(long = "metrics-queue", value_name = "QUEUE", value_parser = parse_queue)]
    pub metrics_queues: Vec<String>,

    /// Run no actions in this process; other workers run them
    #[arg(long)]
    pub no_worker: bool,

    /// Drop a last batch that is complete but does not verify. The batch may have been acknowledged: first read what the
    /// refusal says is at risk
    #[arg(long)]
    pub drop_unverified_tail: bool,

    /// Allow push targets on loopback and private addresses, on any port, over plain HTTP
    #[arg(long)]
    pub allow_private_push_targets: bool,

    /// The URL that push targets call back [default: the address that this server listens on]
    #[arg(long, value_name = "URL", value_parser = parse_callback_url)]
    pub callback_url: Option<String>,
}

fn parse_queue(name: &str) -> Result<String, String> {
    match server::fault_of_scope_name(name) {
        Some(fault) => Err(format!("the name of a queue {fault}")),
        None => Ok(name.to_owned()),
    }
}

fn parse_callback_url(text: &str) -> Result<String, String> {
    match server::fault_of_callback_url(text) {
        Some(fault) => Err(format!("the URL {fault}")),
        None => Ok(text.to_owned()),
    }
}

pub(crate) fn run(options: Options) -> Result<()> {
    let _log = logging::start(LevelFilter::INFO);
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
