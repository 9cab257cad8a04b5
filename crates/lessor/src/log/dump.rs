//! `lessor log dump`: prints records as JSON, one to a line.

use std::ops::ControlFlow;

use anyhow::{Context, Result};
use authority::{Event, Position, TaskId};
use clap::builder::PossibleValuesParser;
use history::time_travel::{records, state_at};
use ledger::Reader;
use server::reapi::queue_defaults;

use super::fields::Fields;
use super::filter::{Filter, QueueTasks};
use super::moment::{self, Moment};
use super::parse_task;
use crate::client::show::{Output, note};

#[derive(clap::Args)]
#[command(after_help = "\
Each line has position, at, type, and the record's own fields; prev is the task's record before. A moment is a \
position (1234), a time (2030-01-31T12:00:00Z) or how long ago it was (10m).

Examples:
  lessor log dump --limit 10
  lessor log dump --task 019a8a3c-5b1e-7000-8000-0000000000aa
  lessor log dump --queue mail --type TaskFailed --type TaskDead --from 1h | jq .error.message")]
pub(super) struct Options {
    /// Only records about this task
    #[arg(long, value_name = "ID", value_parser = parse_task)]
    task: Option<TaskId>,

    /// Only records about tasks of this queue, and its settings
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,

    /// Only records of this type; may be given more than once
    #[arg(long = "type", value_name = "TYPE", ignore_case = true, value_parser = PossibleValuesParser::new(Event::NAMES))]
    types: Vec<String>,

    /// From this moment on
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    from: Option<Moment>,

    /// Up to this moment, inclusive
    #[arg(long, value_name = "MOMENT", value_parser = moment::parse)]
    to: Option<Moment>,

    /// At most so many records
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
}

pub(super) fn run(options: &Options, reader: &dyn Reader) -> Result<()> {
    let kept = reader.first()?;
    let from = options.from.map_or(Ok(kept), |moment| moment.first(reader))?;
    let to = options.to.map_or(Ok(Position(u64::MAX)), |moment| moment.last(reader))?;
    if from < kept {
        note(format_args!("Records before {kept} are no longer kept."));
    }
    let mut filter = Filter { task: options.task, queue: None, types: names(&options.types) };
    if let Some(name) = &options.queue {
        filter.queue = Some(queue_tasks(name, reader)?);
    }
    // To know which tasks are in a queue, all records before must be seen too.
    let start = if filter.queue.is_some() { kept } else { from.max(kept) };
    let mut left = options.limit.unwrap_or(u64::MAX);
    let mut output = Output::new();
    let mut printed = Ok(());
    records(reader, start, &mut |position, record| {
        if position > to || left == 0 {
            return ControlFlow::Break(());
        }
        if !filter.wants(&record.event) || position < from {
            return ControlFlow::Continue(());
        }
        left -= 1;
        let json = serde_json::to_string(&Fields::of(position, &record));
        printed = json.context("a record could not be written as JSON").and_then(|json| output.line(json));
        let is_over = printed.is_err() || output.is_closed();
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    printed
}

/// The types as the events spell them, however they were typed.
fn names(types: &[String]) -> Vec<String> {
    let known = |given: &String| Event::NAMES.iter().copied().find(|name| name.eq_ignore_ascii_case(given));
    types.iter().filter_map(known).map(str::to_owned).collect()
}

/// Tasks whose creation is trimmed are known from the oldest snapshot that can be used.
fn queue_tasks(name: &str, reader: &dyn Reader) -> Result<QueueTasks> {
    let mut tasks = QueueTasks::new(name);
    if reader.first()? == Position(1) {
        return Ok(tasks);
    }
    let oldest =
        reader.snapshots()?.iter().find_map(|info| state_at(reader, info.end, queue_defaults()).ok());
    match oldest {
        Some(state) => {
            let in_slots = (0..state.slots()).filter_map(|slot| state.in_slot(slot));
            in_slots.for_each(|(queue, task)| tasks.add_task(&queue.name, task.id));
        }
        None => note("Tasks that were created before the log begins are missing: no snapshot can be read."),
    }
    Ok(tasks)
}
