//! `lessor task list`: tasks that match, page by page.

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use wire::{DEFAULT_PAGE_TASKS, ListTasks, Task, TaskState};

use crate::client::Error;
use crate::client::http::Client;
use crate::client::show::{Cell, Output, Table, note, state, text, time};

/// Tasks asked for at once. They come with their payloads, so the largest page could be a gigabyte.
const PAGE_TASKS: usize = 200;
/// Longest detail in the table; all of it is in `lessor task get`.
const MAX_DETAIL_CHARS: usize = 80;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  lessor task list --queue mail --state waiting
  lessor task list --state dead --all --json | jq -r '.tasks[].taskId'")]
pub(super) struct Options {
    /// Only tasks of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// Only tasks in this state
    #[arg(long, ignore_case = true, value_parser = states())]
    state: Option<TaskState>,

    /// Most tasks to list
    #[arg(long, value_name = "N", default_value_t = DEFAULT_PAGE_TASKS as u64, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,

    /// List every task
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    tasks: Vec<Box<RawValue>>,
    next_page_token: Option<String>,
}

pub(super) async fn run(options: &Options, client: &Client, json: bool) -> Result<()> {
    let mut view = if json { View::json() } else { View::table() };
    let mut remaining =
        if options.all { usize::MAX } else { usize::try_from(options.limit).unwrap_or(usize::MAX) };
    let mut page_token = None;
    loop {
        let query = ListTasks {
            queue: options.queue.clone(),
            state: options.state,
            limit: Some(remaining.min(PAGE_TASKS)),
            page_token,
        };
        let page: Page = client.get(&["tasks"], &query).await?.parse()?;
        remaining = remaining.saturating_sub(page.tasks.len());
        view.add(page.tasks)?;
        page_token = page.next_page_token;
        if page_token.is_none() || remaining == 0 || view.is_closed() {
            break;
        }
    }
    view.finish(page_token)
}

/// JSON goes out page by page, so that a long list needs no memory; a table must know its widths first.
enum View {
    Json { output: Output, count: usize },
    Table { table: Table, count: usize, now: Timestamp },
}

impl View {
    fn json() -> View {
        View::Json { output: Output::new(), count: 0 }
    }

    fn table() -> View {
        let table = Table::new(&["TASK", "QUEUE", "STATE", "ATTEMPT", "CREATED", "DETAIL"]);
        View::Table { table, count: 0, now: Timestamp::now() }
    }

    fn add(&mut self, tasks: Vec<Box<RawValue>>) -> Result<()> {
        for raw in tasks {
            match self {
                View::Json { output, count } => {
                    let opening = if *count == 0 { "{\"tasks\":[" } else { "," };
                    output.print(format_args!("{opening}{raw}"))?;
                    *count += 1;
                }
                View::Table { table, count, now } => {
                    table.row(row(&serde_json::from_str(raw.get())?, *now));
                    *count += 1;
                }
            }
        }
        Ok(())
    }

    fn is_closed(&self) -> bool {
        matches!(self, View::Json { output, .. } if output.is_closed())
    }

    fn finish(self, next_page_token: Option<String>) -> Result<()> {
        match self {
            View::Json { mut output, count } => {
                let opening = if count == 0 { "{\"tasks\":[" } else { "" };
                let token = serde_json::to_string(&next_page_token)?;
                output.line(format_args!("{opening}],\"nextPageToken\":{token}}}"))
            }
            View::Table { count: 0, .. } => Output::new().line("No tasks match."),
            View::Table { table, count, .. } => {
                Output::new().print(table)?;
                if next_page_token.is_some() {
                    note(format_args!(
                        "These are {count}, and there may be more: --limit N or --all shows them."
                    ));
                }
                Ok(())
            }
        }
    }
}

fn row(task: &Task, now: Timestamp) -> [Cell; 6] {
    [
        Cell::text(&task.task_id),
        Cell::text(&task.queue),
        state::cell(task.state),
        Cell::number(task.attempt),
        Cell::text(time::relative(task.created_at, now)),
        Cell::text(text::short(&state::detail(task, now), MAX_DETAIL_CHARS)),
    ]
}

fn states() -> impl TypedValueParser<Value = TaskState> {
    let names = PossibleValuesParser::new(TaskState::ALL.map(TaskState::name));
    names.try_map(|name| {
        TaskState::from_name(&name.to_uppercase()).ok_or_else(|| Error::Usage(format!("{name} is no state")))
    })
}
