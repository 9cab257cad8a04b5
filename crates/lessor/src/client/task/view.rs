//! A task for people: only what is set.

use jiff::Timestamp;
use wire::Task;

use crate::client::show::time::{exact, full as at, relative};
use crate::client::show::{Record, category, state, text};
use crate::client::task_context;

pub(crate) fn full(task: &Task, now: Timestamp) -> String {
    let mut record = Record::new("task", &task.task_id);
    record.field("queue", &task.queue);
    record.cell("state", state::cell(task.state));
    if task.state.is_final() {
        record.optional("reason", task.reason.as_ref());
        record.optional("detail", task.reason_detail.as_ref());
    }
    record.field("attempt", attempts(task));
    if let Some(lease) = &task.lease {
        record.field("worker", &lease.worker_id);
        record.field(
            "leased",
            format!("{}, expires {}", at(lease.granted_at, now), relative(lease.expires_at, now)),
        );
        record.optional("started by", lease.started_by.as_ref());
    }
    if let Some(progress) = &task.progress {
        let percent = progress.progress_pct.map(|percent| format!("{percent} %"));
        let words = [percent, progress.message.clone()].into_iter().flatten().collect::<Vec<_>>().join(", ");
        record.field("progress", format!("{words} ({})", relative(progress.at, now)));
    }
    if let Some(cancel) = &task.cancel_requested {
        record.field("asked to stop", format!("{} ({})", at(cancel.at, now), cancel.reason));
        if !task.state.is_final() {
            record.field("ends before", at(cancel.grace_until, now));
        }
    }
    if let Some(error) = &task.error {
        let code = error.code.as_ref().map_or(String::new(), |code| format!(" {code}"));
        record.field("error", format!("{}{code}: {}", category::name(error.category), error.message));
    }
    record.optional("stopped during", task.cancelled_during_phase.as_ref());
    record.field("created", at(task.created_at, now));
    record.optional("not before", task.not_before.map(|time| at(time, now)));
    record.optional("deadline", task.deadline.map(|time| at(time, now)));
    record.optional("finished", task.finished_at.map(|time| at(time, now)));
    record.optional("timeout", task.timeout_ms.map(exact));
    if task.priority != 0 {
        record.field("priority", task.priority.to_string());
    }
    for (key, value) in &task.properties {
        record.field("property", format!("{key}={value}"));
    }
    record.optional("dedup key", task.dedup_key.as_ref());
    record.optional("redrive of", task.redrive_of.as_ref());
    task_context::show(&mut record, task);
    let mut text = record.to_string();
    let parts = [
        ("payload", Some(&task.payload)),
        ("resources", task.resources.as_ref()),
        ("result", task.result.as_ref()),
        ("metrics", task.metrics.as_ref()),
        ("partial progress", task.partial_progress.as_ref()),
    ];
    for (name, json) in parts.into_iter().filter_map(|(name, json)| Some((name, json?))) {
        text.push_str(&format!("\n{name}\n{}\n", text::pretty(json)));
    }
    if let Some(trace) = task.error.as_ref().and_then(|error| error.stack_trace.as_ref()) {
        text.push_str(&format!("\nstack trace\n{}\n", text::lines(trace)));
    }
    text
}

/// The attempts that count against the limit, and those that do not.
fn attempts(task: &Task) -> String {
    let counted = format!("{} of {}", task.used_attempts, task.max_attempts);
    match task.attempt.saturating_sub(task.used_attempts) {
        0 => counted,
        released => format!("{counted}, not counting {released} released"),
    }
}
