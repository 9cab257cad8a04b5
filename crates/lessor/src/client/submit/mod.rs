//! `lessor submit`: one task from the command line, or many from a file.

pub(crate) mod batch;
mod dedup;
pub(crate) mod payload;
mod wait;

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use jiff::Timestamp;
use wire::{Json, SubmitTask, Submitted, Task, TaskContext, TaskState};

use self::payload::Payload;
use super::backoff::BackoffOptions;
use super::connection::Connection;
use super::duration::{parse_ms, parse_time};
use super::error::Error;
use super::http::Client;
use super::show::{Output, note, state, text, time};
use super::task_context::ContextOptions;
use crate::exit;

#[derive(clap::Args)]
#[command(override_usage = "\
lessor submit [OPTIONS] <QUEUE> [PAYLOAD|-|@FILE]
       lessor submit [OPTIONS] --batch <FILE|->")]
#[command(after_help = "\
Durations have a unit: 500ms, 90s, 5m, 2h, 1d, 1h30m.

A task without --dedup-key, also in a batch, gets a random one. So if an answer is lost, the submit is sent again \
and the task is still there only once. Your own key also guards against running the command twice.

Examples:
  lessor submit hello '{\"name\":\"world\"}'
  lessor submit mail @letter.json --delay 10m --dedup-key letter-17
  lessor submit build '{\"target\":\"all\"}' --property os=linux --wait
  jq -c '{queue:\"mail\",payload:.}' letters.json | lessor submit --batch -

Exit codes: 0 submitted (with --wait: COMPLETED), 1 refused or no answer, 2 wrong usage, 5 with --wait: FAILED or DEAD.")]
pub(crate) struct Options {
    #[command(flatten)]
    task: TaskOptions,

    #[command(flatten)]
    context: ContextOptions,

    #[command(flatten)]
    backoff: BackoffOptions,

    /// Wait until the task is final and print its result; how it ended goes to standard error
    #[arg(long)]
    wait: bool,

    /// Submit a task for each line of FILE, or of standard input for -: JSON objects as POST /v1/tasks takes them,
    /// such as {"queue":"mail","payload":1}
    #[arg(long, value_name = "FILE", conflicts_with_all = ["TaskOptions", "ContextOptions", "BackoffOptions", "wait"])]
    batch: Option<String>,

    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Args)]
struct TaskOptions {
    /// The queue to wait in; it exists from its first use
    #[arg(required_unless_present = "batch")]
    queue: Option<String>,

    /// What the worker gets: JSON, - for standard input, or @FILE [default: null]
    #[arg(value_parser = Payload::parse, allow_negative_numbers = true)]
    payload: Option<Payload>,

    /// Lower is sooner [default: 0]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    priority: Option<i32>,

    /// Wait this long before the task may be leased
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    delay: Option<u64>,

    /// The same key with the same payload and properties gives the same task
    #[arg(long, value_name = "KEY")]
    dedup_key: Option<String>,

    /// How often the task is tried [default: the queue's]
    #[arg(long, value_name = "NUMBER")]
    max_attempts: Option<u32>,

    /// What a worker must offer to get the task; may be repeated
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = parse_property)]
    properties: Vec<(String, String)>,

    /// When the task is given up: a time such as 2030-01-31T12:00:00Z, or a duration from now
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    deadline: Option<Timestamp>,

    /// How long one attempt may take
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    timeout: Option<u64>,

    /// How long a lease lives without a heartbeat [default: the queue's]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    lease: Option<u64>,
}

pub(crate) async fn run(options: &Options) -> Result<ExitCode> {
    if let Some(source) = &options.batch {
        return batch::run(source, &options.connection).await;
    }
    let mut task = options.task.to_wire(options.context.to_wire())?;
    task.backoff = options.backoff.over(None);
    let has_own_key = task.dedup_key.is_some();
    dedup::ensure(&mut task)?;
    let client = Client::new(&options.connection)?;
    let answer = client.post(&["tasks"], &task).await?;
    let submitted: Submitted = answer.parse()?;
    // With a generated key, a task that exists already is the one whose answer was lost.
    let existed = has_own_key && answer.status() == 200;
    let message = if existed {
        format!("Task {} exists already, {}.", submitted.task_id, submitted.state.name())
    } else {
        format!("Submitted {} to {}.", submitted.task_id, text::clean(&task.queue))
    };
    if options.wait {
        if !options.connection.json {
            note(message);
        }
        return show_end(&client, &submitted.task_id, options.connection.json).await;
    }
    Output::new().line(if options.connection.json { answer.text() } else { message.into() })?;
    Ok(ExitCode::SUCCESS)
}

async fn show_end(client: &Client, task_id: &str, json: bool) -> Result<ExitCode> {
    let (task, answer) = wait::until_final(client, task_id).await?;
    let mut output = Output::new();
    if json {
        output.line(answer.text())?;
    } else {
        note(describe_end(&task));
        if let Some(result) = &task.result {
            output.line(text::pretty(result))?;
        }
    }
    Ok(match task.state {
        TaskState::Completed => ExitCode::SUCCESS,
        _ => ExitCode::from(exit::TASK_FAILED),
    })
}

fn describe_end(task: &Task) -> String {
    let style = state::style(task.state);
    let took = task.finished_at.map_or(String::new(), |end| {
        let ms = end.as_millisecond().saturating_sub(task.created_at.as_millisecond());
        format!(" after {}", time::rough(ms.unsigned_abs()))
    });
    let why = match task.state {
        TaskState::Completed => String::new(),
        _ => format!(": {}", state::why(task)),
    };
    format!("{style}{}{style:#} on attempt {}{took}{why}", task.state.name(), task.attempt)
}

impl TaskOptions {
    fn to_wire(&self, context: TaskContext) -> Result<SubmitTask, Error> {
        let payload = self.payload.as_ref().map_or_else(|| Ok(Json::null()), Payload::read)?;
        let mut properties = BTreeMap::new();
        for (key, value) in &self.properties {
            if properties.insert(key.clone(), value.clone()).is_some() {
                return Err(Error::Usage(format!("the property {key} is given twice")));
            }
        }
        Ok(wire::in_task_context!(SubmitTask {
            queue: self.queue.clone().unwrap_or_default(),
            payload,
            priority: self.priority,
            delay_ms: self.delay,
            dedup_key: self.dedup_key.clone(),
            max_attempts: self.max_attempts,
            backoff: None,
            properties: (!properties.is_empty()).then_some(properties),
            deadline: self.deadline,
            timeout_ms: self.timeout,
            lease_ms: self.lease,
            ..context
        }))
    }
}

fn parse_property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("a property is written as KEY=VALUE, such as os=linux".to_owned()),
    }
}
