//! `lessor log explain`: the timeline of a task in words.

use std::ops::ControlFlow;

use anyhow::{Result, bail};
use authority::TaskId;
use coordinator::EMBEDDED_NODE;
use history::explain::{Step, StepKind, Timeline, concerns, explain};
use history::time_travel::records;
use jiff::Timestamp;
use ledger::{HistoryRecord, Reader};
use serde_json::Value;

use super::fields::{self, Fields};
use super::parse_task;
use crate::client::show::{Cell, Output, Record, Table, note, state, text, time};

#[derive(clap::Args)]
#[command(after_help = "\
Tells what happened to the task, when, at which worker, how long it waited and ran, why it ran more than once, and \
why it ended as it did. In a cluster it names the node that decided each step. Heartbeats are counted, not listed; `lessor log dump --task ID` has every record. A task \
that was purged is still explained, while its records are kept.

Examples:
  lessor log explain 019a8a3c-5b1e-7000-8000-0000000000aa
  lessor log explain 019a8a3c-5b1e-7000-8000-0000000000aa --json | jq -r '.steps[].words'")]
pub(super) struct Options {
    /// The task's id
    #[arg(value_name = "ID", value_parser = parse_task)]
    task: TaskId,
}

pub(super) fn run(options: &Options, reader: &dyn Reader, json: bool) -> Result<()> {
    let mut past = Vec::new();
    let first = reader.first()?;
    records(reader, first, &mut |position, record| {
        if concerns(options.task, &record.event) {
            past.push(HistoryRecord { position, at: record.at, event: record.event });
        }
        ControlFlow::Continue(())
    })?;
    let timeline = explain(options.task, &past, &server::reapi::queue_defaults());
    if timeline.steps.is_empty() {
        bail!("no record is about task {}; the log begins at position {}", options.task, first);
    }
    let mut output = Output::new();
    if json {
        return output.line(serde_json::to_string(&as_fields(&timeline))?);
    }
    if timeline.is_truncated {
        note("Older records of this task are no longer kept.");
    }
    output.print(in_words(&timeline, Timestamp::now()))
}

fn in_words(timeline: &Timeline, now: Timestamp) -> String {
    let mut head = Record::new("task", &timeline.task.to_string());
    head.optional("queue", timeline.queue.as_ref().map(|queue| queue.name.to_string()));
    if let Some(now) = timeline.state {
        head.cell("state", state::cell(server::to_wire::state(now)));
    }
    // A server without other nodes always decides itself.
    let has_nodes =
        timeline.steps.iter().any(|step| step.owner.as_deref().is_some_and(|owner| owner != EMBEDDED_NODE));
    let mut titles = vec!["POSITION", "TIME", "", "WHAT HAPPENED"];
    if has_nodes {
        titles.insert(3, "OWNER");
    }
    let mut table = Table::new(&titles);
    for step in &timeline.steps {
        let at = server::to_wire::time(step.at);
        let mut cells = vec![
            Cell::number(step.position),
            Cell::text(format!("{at:.3}")),
            Cell::text(time::relative(at, now)),
        ];
        if has_nodes {
            cells.push(Cell::text(step.owner.as_deref().unwrap_or("?")));
        }
        cells.push(Cell::text(step.render()));
        table.row(cells);
    }
    format!("{head}\n{table}\n{}\n", text::clean(&timeline.summary()))
}

fn as_fields(timeline: &Timeline) -> Fields {
    let mut out = Fields::default();
    out.put("taskId", timeline.task.to_string());
    if let Some(queue) = &timeline.queue {
        out.queue(queue);
    }
    out.put("state", timeline.state.map(|state| server::to_wire::state(state).name()));
    out.put("purged", timeline.is_purged);
    out.put("truncated", timeline.is_truncated);
    out.put("attempts", timeline.attempts);
    out.put("releases", timeline.releases);
    out.put("waitedMs", timeline.waited_ms);
    out.put("ranMs", timeline.ran_ms);
    out.put("summary", timeline.summary());
    out.put("steps", timeline.steps.iter().map(step_fields).collect::<Vec<_>>());
    out
}

fn step_fields(step: &Step) -> Fields {
    let mut out = Fields::default();
    out.put("position", step.position.0);
    out.time("at", Some(step.at));
    out.put("what", step.kind.name());
    out.put("attempt", step.attempt);
    out.put("workerId", step.worker.as_deref());
    out.put("ranMs", step.ran_ms);
    out.put("extensions", step.extensions);
    out.put("owner", step.owner.as_deref());
    out.put("by", step.by.as_deref().map(fields::actor));
    details(&mut out, &step.kind);
    out.put("words", step.render());
    out
}

fn details(out: &mut Fields, what: &StepKind) {
    match what {
        StepKind::Submitted { queue, priority, delay_ms, redrive_of } => {
            out.put("queue", &**queue);
            out.put("priority", *priority);
            out.put("delayMs", *delay_ms);
            out.put("redriveOf", redrive_of.map(|task| task.to_string()));
        }
        StepKind::Leased { waited_ms, lease_ms } => {
            out.put("waitedMs", *waited_ms);
            out.put("leaseMs", *lease_ms);
        }
        StepKind::Started { by } => out.put("startedBy", &**by),
        StepKind::Lost { cause, silent_ms, is_last } => {
            out.put("cause", cause.name());
            out.put("silentMs", *silent_ms);
            out.put("lastAttempt", *is_last);
        }
        StepKind::Released { cause } => out.put("cause", cause.name()),
        StepKind::Failed { error, retry_ms } => {
            out.put("error", fields::error(error));
            out.put("retryMs", *retry_ms);
        }
        StepKind::FailedForGood { error, why } => {
            out.put("error", fields::error(error));
            out.put("why", why.name());
        }
        StepKind::Completed { result_bytes } => out.put("resultBytes", *result_bytes),
        StepKind::Dead { reason, detail, error, silent_ms, .. } => {
            out.put("reason", reason.name());
            out.put("reasonDetail", detail.as_deref());
            out.put("error", error.as_ref().map_or(Value::Null, fields::error));
            out.put("silentMs", *silent_ms);
        }
        StepKind::AskedToStop { cause, reason, grace_ms } => {
            out.put("cause", cause.name());
            out.put("reason", &**reason);
            out.put("graceMs", *grace_ms);
        }
        StepKind::Discarded { why } => out.put("why", why.name()),
        StepKind::Restarted { epoch, taken_from } => {
            out.put("epoch", *epoch);
            out.put("takenFrom", taken_from.as_deref());
        }
        StepKind::Note { event, .. } => {
            out.extend(event.fields().into_iter().filter(|(name, _)| !matches!(*name, "taskId" | "by")));
        }
        StepKind::Purged => {}
    }
}
