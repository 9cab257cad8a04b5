//! `lessor log state`: the state at a moment of the past.

use std::collections::BTreeSet;

use anyhow::{Result, anyhow};
use authority::{QueueView, Scope, State, TaskId};
use coordinator::TaskDetail;
use history::time_travel::{last, state_at};
use jiff::Timestamp;
use ledger::Reader;
use serde_json::{Value, json};
use wire::DEFAULT_SCOPE_NAME;

use super::moment::{self, Moment};
use super::parse_task;
use crate::client::show::text::counted;
use crate::client::show::time::full;
use crate::client::show::{Cell, Output, Table};
use crate::client::task::view;

#[derive(clap::Args)]
#[command(after_help = "\
A moment is a position (1234), a time (2030-01-31T12:00:00Z) or how long ago it was (10m). How far back it can go \
depends on the history and snapshots that are kept.

Examples:
  lessor log state
  lessor log state --at 10m
  lessor log state --at 1234 --task 019a8a3c-5b1e-7000-8000-0000000000aa --json")]
pub(super) struct Options {
    /// The moment, after everything that was recorded up to it [default: the end of the log]
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    at: Option<Moment>,

    /// One task in full, instead of counts by queue
    #[arg(long, value_name = "ID", value_parser = parse_task)]
    task: Option<TaskId>,
}

pub(super) fn run(options: &Options, reader: &dyn Reader, json: bool) -> Result<()> {
    let position = match options.at {
        Some(moment) => moment.last(reader)?,
        None => last(reader)?,
    };
    let mut state = state_at(reader, position, server::reapi::queue_defaults())?;
    if let Some(Moment::Time(time)) = options.at {
        let now = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        state.advance(time.min(authority::Time(now)));
    }
    state.advance(state.time());
    let mut output = Output::new();
    match options.task {
        Some(id) => {
            let task = task(&state, id).ok_or_else(|| {
                anyhow!(
                    "there was no task {id} after position {position}; `lessor log explain` shows its timeline"
                )
            })?;
            if json {
                return output.line(json!({"position": position.0, "at": at(&state), "task": task}));
            }
            output.print(view::full(&task, Timestamp::now()))
        }
        None if json => output.line(as_json(&state)),
        None => output.print(table(&state, Timestamp::now())),
    }
}

fn task(state: &State, id: TaskId) -> Option<wire::Task> {
    let view = state.view(id)?;
    Some(server::to_wire::task(TaskDetail { view, progress: None }))
}

fn queues(state: &State) -> Vec<QueueView> {
    let with_tasks = (0..state.slots()).filter_map(|slot| state.in_slot(slot)).map(|(queue, _)| queue);
    let configured = state.configured_queues().map(|(queue, ..)| queue);
    let scopes: BTreeSet<&Scope> = with_tasks.chain(configured).map(|queue| &queue.scope).collect();
    scopes.into_iter().flat_map(|scope| state.queue_views(scope)).collect()
}

fn at(state: &State) -> Option<Timestamp> {
    (state.position().0 > 0).then(|| server::to_wire::time(state.time()))
}

fn as_json(state: &State) -> Value {
    let queues: Vec<_> = queues(state)
        .into_iter()
        .map(|queue| {
            json!({
                "tenant": *queue.key.scope.tenant,
                "workspace": *queue.key.scope.workspace,
                "queue": *queue.key.name,
                "counts": {
                    "waiting": queue.waiting,
                    "delayed": queue.delayed,
                    "leased": queue.leased,
                    "completed": queue.completed,
                    "failed": queue.failed,
                    "dead": queue.dead,
                },
            })
        })
        .collect();
    json!({"position": state.position().0, "at": at(state), "tasks": state.len(), "queues": queues})
}

fn table(state: &State, now: Timestamp) -> String {
    let when = at(state).map_or(String::new(), |at| format!(", {}", full(at, now)));
    let tasks = counted(state.len(), "task");
    let mut text = format!("After position {}{when}: {tasks}\n", state.position());
    let queues = queues(state);
    if queues.is_empty() {
        return text;
    }
    let mut table = Table::new(&["QUEUE", "WAITING", "DELAYED", "LEASED", "COMPLETED", "FAILED", "DEAD"]);
    for queue in queues {
        let counts = [queue.waiting, queue.delayed, queue.leased, queue.completed, queue.failed, queue.dead];
        table.row([Cell::text(name(&queue))].into_iter().chain(counts.map(Cell::number)));
    }
    text.push_str(&format!("\n{table}"));
    text
}

/// The queue's name, with tenant and workspace where they are not the default ones.
fn name(queue: &QueueView) -> String {
    let Scope { tenant, workspace } = &queue.key.scope;
    match (&**tenant, &**workspace) {
        (DEFAULT_SCOPE_NAME, DEFAULT_SCOPE_NAME) => queue.key.name.to_string(),
        (tenant, workspace) => format!("{tenant}/{workspace}/{}", queue.key.name),
    }
}
