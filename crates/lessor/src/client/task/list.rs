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
pub(crate) struct Options {
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
    let mut view = View::new(json);
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
        if page_token.is_none() || remaining == 0 || view.output.is_closed() {
            break;
        }
    }
    view.finish(page_token)
}

/// JSON is printed page by page, so that a long list needs no memory; a table must know its widths first.
struct View {
    output: Output,
    /// `None` for JSON.
    table: Option<Table>,
    count: usize,
    now: Timestamp,
}

impl View {
    fn new(json: bool) -> View {
        let headings = ["TASK", "QUEUE", "STATE", "ATTEMPT", "CREATED", "DETAIL"];
        let table = (!json).then(|| Table::new(&headings));
        View { output: Output::new(), table, count: 0, now: Timestamp::now() }
    }

    fn add(&mut self, tasks: Vec<Box<RawValue>>) -> Result<()> {
        for raw in tasks {
            match &mut self.table {
                Some(table) => table.row(row(&serde_json::from_str(raw.get())?, self.now)),
                None => {
                    let opening = self.opening(",");
                    self.output.print(format_args!("{opening}{raw}"))?;
                }
            }
            self.count += 1;
        }
        Ok(())
    }

    /// The beginning of the JSON document, or what follows it.
    fn opening(&self, otherwise: &'static str) -> &'static str {
        if self.count == 0 { "{\"tasks\":[" } else { otherwise }
    }

    fn finish(mut self, next_page_token: Option<String>) -> Result<()> {
        let opening = self.opening("");
        match self.table {
            None => {
                let token = serde_json::to_string(&next_page_token)?;
                self.output.line(format_args!("{opening}],\"nextPageToken\":{token}}}"))
            }
            Some(_) if self.count == 0 => self.output.line("No tasks match."),
            Some(table) => {
                self.output.print(table)?;
                if next_page_token.is_some() {
                    note(format_args!(
                        "These are {}, and there may be more: --limit N or --all shows them.",
                        self.count
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
