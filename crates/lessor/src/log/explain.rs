//! `lessor log explain`: the story of a task in words.

use std::ops::ControlFlow;

use anyhow::{Result, bail};
use authority::TaskId;
use jiff::Timestamp;
use ledger::explain::{Past, Step, Story, What, concerns, explain};
use ledger::file::Inspection;
use ledger::past::records;
use serde_json::Value;

use super::fields::{self, Fields};
use super::parse_task;
use crate::client::show::{Cell, Output, Record, Table, note, state, text, time};

#[derive(clap::Args)]
#[command(after_help = "\
Tells what happened to the task, when, at which worker, how long it waited and ran, why it ran more than once, and \
why it ended as it did. Heartbeats are counted, not listed; `lessor log dump --task ID` has every record. A task \
that was purged is still explained, while its records are kept.

Examples:
  lessor log explain 019a8a3c-5b1e-7000-8000-0000000000aa
  lessor log explain 019a8a3c-5b1e-7000-8000-0000000000aa --json | jq -r '.steps[].words'")]
pub struct Options {
    /// The task's id
    #[arg(value_name = "ID", value_parser = parse_task)]
    task: TaskId,
}

pub fn run(options: &Options, inspection: &Inspection, json: bool) -> Result<()> {
    let mut past = Vec::new();
    records(inspection, inspection.first(), &mut |position, record| {
        if concerns(options.task, &record.event) {
            past.push(Past { position, at: record.at, event: record.event });
        }
        ControlFlow::Continue(())
    })?;
    let story = explain(options.task, &past);
    if story.steps.is_empty() {
        bail!("no record is about task {}; the log begins at position {}", options.task, inspection.first());
    }
    let mut output = Output::new();
    if json {
        return output.line(serde_json::to_string(&as_fields(&story))?);
    }
    if story.is_truncated {
        note("Older records of this task are no longer kept.");
    }
    output.print(in_words(&story, Timestamp::now()))
}

fn in_words(story: &Story, now: Timestamp) -> String {
    let mut head = Record::new("task", &story.task.to_string());
    head.optional("queue", story.queue.as_ref().map(|queue| queue.name.to_string()));
    if let Some(now) = story.state {
        head.cell("state", state::cell(server::to_wire::state(now)));
    }
    let mut table = Table::new(&["POSITION", "TIME", "", "WHAT HAPPENED"]);
    for step in &story.steps {
        let at = server::to_wire::time(step.at);
        table.row([
            Cell::number(step.position),
            Cell::text(format!("{at:.3}")),
            Cell::text(time::relative(at, now)),
            Cell::text(step.words()),
        ]);
    }
    format!("{head}\n{table}\n{}\n", text::clean(&story.summary()))
}

fn as_fields(story: &Story) -> Fields {
    let mut out = Fields::default();
    out.put("taskId", story.task.to_string());
    if let Some(queue) = &story.queue {
        out.queue(queue);
    }
    out.put("state", story.state.map(|state| server::to_wire::state(state).name()));
    out.put("purged", story.is_purged);
    out.put("truncated", story.is_truncated);
    out.put("attempts", story.attempts);
    out.put("releases", story.releases);
    out.put("waitedMs", story.waited_ms);
    out.put("ranMs", story.ran_ms);
    out.put("summary", story.summary());
    out.put("steps", story.steps.iter().map(step_fields).collect::<Vec<_>>());
    out
}

fn step_fields(step: &Step) -> Fields {
    let mut out = Fields::default();
    out.put("position", step.position.0);
    out.time("at", Some(step.at));
    out.put("what", step.what.name());
    out.put("attempt", step.attempt);
    out.put("workerId", step.worker.as_deref());
    out.put("ranMs", step.ran_ms);
    out.put("extensions", step.extensions);
    details(&mut out, &step.what);
    out.put("words", step.words());
    out
}

fn details(out: &mut Fields, what: &What) {
    match what {
        What::Submitted { queue, priority, delay_ms, redrive_of } => {
            out.put("queue", &**queue);
            out.put("priority", *priority);
            out.put("delayMs", *delay_ms);
            out.put("redriveOf", redrive_of.map(|task| task.to_string()));
        }
        What::Leased { waited_ms, lease_ms } => {
            out.put("waitedMs", *waited_ms);
            out.put("leaseMs", *lease_ms);
        }
        What::Started { by } => out.put("startedBy", &**by),
        What::Lost { cause, silent_ms, is_last } => {
            out.put("cause", fields::expiry_cause(*cause));
            out.put("silentMs", *silent_ms);
            out.put("lastAttempt", *is_last);
        }
        What::Released { cause } => out.put("cause", fields::release_cause(*cause)),
        What::Failed { error, retry_ms } => {
            out.put("error", fields::error(error));
            out.put("retryMs", *retry_ms);
        }
        What::FailedForGood { error, why } => {
            out.put("error", fields::error(error));
            out.put("why", why.name());
        }
        What::Completed { result_bytes } => out.put("resultBytes", *result_bytes),
        What::Dead { reason, detail, error, silent_ms, .. } => {
            out.put("reason", reason.name());
            out.put("reasonDetail", detail.as_deref());
            out.put("error", error.as_ref().map_or(Value::Null, fields::error));
            out.put("silentMs", *silent_ms);
        }
        What::AskedToStop { cause, reason, grace_ms } => {
            out.put("cause", fields::cancel_cause(*cause));
            out.put("reason", &**reason);
            out.put("graceMs", *grace_ms);
        }
        What::Discarded { why } => out.put("why", why.name()),
        What::Restarted { epoch } => out.put("epoch", *epoch),
        What::WaiterJoined { operation } | What::WaiterLeft { operation } => {
            out.put("operation", &**operation);
        }
        What::Purged => {}
    }
}
