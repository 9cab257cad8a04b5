//! `lessor queue set`: change some settings and leave the others. The contract replaces a queue's whole configuration,
//! so this reads it first; of two people who do this at the same moment, the later one wins.

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use wire::{ErrorCategory, Queue, QueueConfig};

use super::push::PushOptions;
use super::view;
use crate::client::Error;
use crate::client::backoff::BackoffOptions;
use crate::client::duration::parse_ms;
use crate::client::http::Client;
use crate::client::show::category;

#[derive(clap::Args)]
#[command(after_help = "\
Durations have a unit: 500ms, 90s, 5m, 2h, 1d, 1h30m. Settings that are not named stay as they are. A task's own \
settings win over its queue's.

Examples:
  lessor queue set mail --max-attempts 5 --lease 2m
  lessor queue set mail --retry-on INFRASTRUCTURE,TIMEOUT
  lessor queue set mail --push-url https://mail.example/tasks --push-secret-file secret.txt
  lessor queue set mail --reset")]
pub(crate) struct Options {
    /// The queue's name
    name: String,

    /// Begin from the defaults instead of the present settings
    #[arg(long)]
    reset: bool,

    /// How often a task is tried
    #[arg(long, value_name = "NUMBER")]
    max_attempts: Option<u32>,

    /// How long a lease lives without a heartbeat
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    lease: Option<u64>,

    /// How often a worker should send a heartbeat, at most half of the lease
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    heartbeat_interval: Option<u64>,

    /// How long a worker that is asked to stop may take
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    cancel_grace: Option<u64>,

    #[command(flatten)]
    backoff: BackoffOptions,

    /// Try only these categories of errors again, whatever the worker says; separated by commas
    #[arg(long, value_name = "CATEGORY", value_delimiter = ',', ignore_case = true, value_parser = categories())]
    retry_on: Option<Vec<ErrorCategory>>,

    /// Most waiting and leased tasks
    #[arg(long, value_name = "NUMBER")]
    max_queue_size: Option<u64>,

    /// How long final tasks are kept
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    retention: Option<u64>,

    #[command(flatten)]
    push: PushOptions,
}

pub(super) async fn run(options: &Options, client: &Client, json: bool) -> Result<()> {
    let nothing = || Ok::<_, Error>(options.over(QueueConfig::default())? == QueueConfig::default());
    if !options.reset && !options.push.is_given() && nothing()? {
        return Err(
            Error::Usage("nothing to set; `lessor queue set --help` lists the settings".to_owned()).into()
        );
    }
    let path = ["queues", options.name.as_str()];
    let before = if options.reset { QueueConfig::default() } else { configured(client, &path).await? };
    client.put(&path, &options.over(before)?).await?.print(json, view::full)
}

async fn configured(client: &Client, path: &[&str]) -> Result<QueueConfig, Error> {
    match client.get(path, &()).await {
        Ok(answer) => Ok(answer.parse::<Queue>()?.configured),
        Err(error) if error.is_not_found() => Ok(QueueConfig::default()),
        Err(error) => Err(error),
    }
}

impl Options {
    fn over(&self, before: QueueConfig) -> Result<QueueConfig, Error> {
        Ok(QueueConfig {
            max_attempts: self.max_attempts.or(before.max_attempts),
            lease_ms: self.lease.or(before.lease_ms),
            // The other name of the lease would contradict a new one.
            heartbeat_timeout_ms: if self.lease.is_some() { None } else { before.heartbeat_timeout_ms },
            heartbeat_interval_ms: self.heartbeat_interval.or(before.heartbeat_interval_ms),
            cancel_grace_period_ms: self.cancel_grace.or(before.cancel_grace_period_ms),
            backoff: self.backoff.over(before.backoff),
            retry_on: self.retry_on.clone().or(before.retry_on),
            max_queue_size: self.max_queue_size.or(before.max_queue_size),
            retention_ms: self.retention.or(before.retention_ms),
            push: self.push.over(before.push)?,
        })
    }
}

fn categories() -> impl TypedValueParser<Value = ErrorCategory> {
    PossibleValuesParser::new(category::ALL.map(category::name)).try_map(|name| {
        category::from_name(&name.to_uppercase())
            .ok_or_else(|| Error::Usage(format!("{name} is no category")))
    })
}
