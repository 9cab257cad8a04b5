//! The columns of the tables, each with its value: the only place that knows how a task becomes a row.

use std::sync::Arc;

use authority::{Phase, TaskState};

use super::cell::Cell;
use super::json::to_jsonb;
use crate::changes::{ChangedTask, EndedAttempt};

pub(super) struct Column<T: 'static> {
    pub name: &'static str,
    /// The type in SQL.
    pub sql: &'static str,
    /// Never changes after the task was created, and is sent only then.
    pub is_fixed: bool,
    pub value: fn(&T, &Context) -> Cell,
}

/// What else a row depends on.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub shard: u32,
    pub max_json_bytes: usize,
}

impl Context {
    fn json(&self, content: Option<&[u8]>) -> Cell {
        let text = content.and_then(|content| to_jsonb(content, self.max_json_bytes));
        text.map_or(Cell::Null, |text| Cell::Json(text.into()))
    }
}

const fn column<T>(name: &'static str, sql: &'static str, value: fn(&T, &Context) -> Cell) -> Column<T> {
    Column { name, sql, is_fixed: false, value }
}

const fn fixed<T>(name: &'static str, sql: &'static str, value: fn(&T, &Context) -> Cell) -> Column<T> {
    Column { name, sql, is_fixed: true, value }
}

macro_rules! option {
    ($job:expr, $field:ident) => {
        $job.task.options.as_ref().and_then(|options| options.$field.as_ref())
    };
}

macro_rules! lease {
    ($job:expr, $lease:ident => $value:expr) => {
        $job.task.lease().map_or(Cell::Null, |$lease| $value.into())
    };
}

macro_rules! error {
    ($job:expr, $error:ident => $value:expr) => {
        shown_error($job).map_or(Cell::Null, |$error| $value.into())
    };
}

fn shown_error(job: &ChangedTask) -> Option<&authority::TaskError> {
    job.task.last_error.as_deref().filter(|_| job.task.state() != TaskState::Completed)
}

/// The key comes first.
pub(super) const JOBS: &[Column<ChangedTask>] = &[
    column("id", "uuid", |job, _| job.task.id.into()),
    column("shard", "int4", |_, context| context.shard.into()),
    column("tenant", "text", |job, _| (&job.queue.scope.tenant).into()),
    column("workspace", "text", |job, _| (&job.queue.scope.workspace).into()),
    column("queue", "text", |job, _| (&job.queue.name).into()),
    column("state", "text", |job, _| state_name(job.task.state()).into()),
    column("reason", "text", |job, _| match &job.task.phase {
        Phase::Dead { reason, .. } => reason.name().into(),
        Phase::Failed { .. } => job.task.last_error.as_ref().map(|error| error.category.name()).into(),
        _ => Cell::Null,
    }),
    column("reason_detail", "text", |job, _| match &job.task.phase {
        Phase::Dead { detail, .. } => detail.as_ref().into(),
        Phase::Failed { .. } => job.task.last_error.as_ref().map(|error| &error.message).into(),
        _ => Cell::Null,
    }),
    column("attempt", "int4", |job, _| job.task.attempt.into()),
    column("used_attempts", "int4", |job, _| job.task.used_attempts().into()),
    column("max_attempts", "int4", |job, _| option!(job, max_attempts).copied().into()),
    column("priority", "int4", |job, _| job.task.priority.into()),
    fixed("payload", "jsonb", |job, context| context.json(Some(&job.task.payload))),
    column("result", "jsonb", |job, context| match &job.task.phase {
        Phase::Completed { result, .. } => context.json(Some(result)),
        _ => Cell::Null,
    }),
    column("error_category", "text", |job, _| error!(job, error => error.category.name())),
    column("error_code", "text", |job, _| error!(job, error => error.code.as_ref())),
    column("error_message", "text", |job, _| error!(job, error => &error.message)),
    column("stack_trace", "text", |job, _| {
        let details = job.task.details.as_ref().filter(|_| shown_error(job).is_some());
        details.and_then(|details| details.stack_trace.as_ref()).into()
    }),
    column("metrics", "jsonb", |job, context| {
        context.json(job.task.details.as_ref().and_then(|details| details.metrics.as_deref()))
    }),
    column("partial_progress", "jsonb", |job, context| {
        context.json(job.task.partial_progress().map(|progress| &**progress))
    }),
    column("cancelled_during_phase", "text", |job, _| {
        job.task.details.as_ref().and_then(|details| details.cancelled_during_phase.as_ref()).into()
    }),
    fixed("properties", "jsonb", |job, _| {
        let pairs = job.task.properties.iter().map(|(name, value)| {
            let text = |text: &Arc<str>| serde_json::Value::from(text.replace('\0', "\u{fffd}"));
            (name.replace('\0', "\u{fffd}"), text(value))
        });
        Cell::Json(serde_json::Value::Object(pairs.collect()).to_string().into())
    }),
    column("dedup_key", "text", |job, _| option!(job, dedup).map(|dedup| &dedup.key).into()),
    column("run_id", "text", |job, _| option!(job, run_id).into()),
    column("asset_id", "text", |job, _| option!(job, asset_id).into()),
    column("task_key", "text", |job, _| option!(job, task_key).into()),
    fixed("resources", "jsonb", |job, context| {
        context.json(option!(job, resources).map(|resources| &**resources))
    }),
    column("created_at", "timestamptz", |job, _| job.task.created_at.into()),
    column("not_before", "timestamptz", |job, _| match job.task.phase {
        Phase::Waiting { not_before, .. } => not_before.into(),
        _ => Cell::Null,
    }),
    column("deadline", "timestamptz", |job, _| option!(job, deadline).copied().into()),
    column("timeout_ms", "int8", |job, _| option!(job, timeout_ms).copied().into()),
    column("finished_at", "timestamptz", |job, _| job.task.ended().map(|(at, _)| at).into()),
    column("worker", "text", |job, _| lease!(job, lease => &lease.worker)),
    column("contract", "text", |job, _| lease!(job, lease => lease.contract.map(|contract| contract.name()))),
    column("fencing_token", "int8", |job, _| lease!(job, lease => lease.fencing_token)),
    column("granted_at", "timestamptz", |job, _| lease!(job, lease => lease.granted_at)),
    column("expires_at", "timestamptz", |job, _| lease!(job, lease => lease.expires_at)),
    column("started_by", "text", |job, _| lease!(job, lease => lease.started_by.as_ref())),
    column("cancel_reason", "text", |job, _| job.task.cancel.as_ref().map(|cancel| &cancel.reason).into()),
    column("cancel_requested_at", "timestamptz", |job, _| {
        job.task.cancel.as_ref().map(|cancel| cancel.requested_at).into()
    }),
    column("cancel_grace_until", "timestamptz", |job, _| {
        job.task.cancel.as_ref().map(|cancel| cancel.grace_until).into()
    }),
    column("redrive_of", "uuid", |job, _| option!(job, redrive_of).copied().into()),
    column("position", "int8", |job, _| job.task.last.into()),
];

/// The key comes first.
pub(super) const ATTEMPTS: &[Column<EndedAttempt>] = &[
    column("job_id", "uuid", |ended, _| ended.task.into()),
    column("attempt", "int4", |ended, _| ended.attempt.into()),
    column("tenant", "text", |ended, _| (&ended.queue.scope.tenant).into()),
    column("workspace", "text", |ended, _| (&ended.queue.scope.workspace).into()),
    column("queue", "text", |ended, _| (&ended.queue.name).into()),
    column("worker", "text", |ended, _| (&ended.lease.worker).into()),
    column("contract", "text", |ended, _| ended.lease.contract.map(|contract| contract.name()).into()),
    column("fencing_token", "int8", |ended, _| ended.lease.fencing_token.into()),
    column("granted_at", "timestamptz", |ended, _| ended.lease.granted_at.into()),
    column("started_by", "text", |ended, _| ended.lease.started_by.as_ref().into()),
    column("ended_at", "timestamptz", |ended, _| ended.ended_at.into()),
    column("outcome", "text", |ended, _| ended.outcome.name().into()),
    column("reason", "text", |ended, _| ended.reason.into()),
    column("error_category", "text", |ended, _| {
        ended.error.as_ref().map(|error| error.category.name()).into()
    }),
    column("error_code", "text", |ended, _| {
        ended.error.as_ref().and_then(|error| error.code.as_ref()).into()
    }),
    column("error_message", "text", |ended, _| ended.error.as_ref().map(|error| &error.message).into()),
    column("position", "int8", |ended, _| ended.position.into()),
];

fn state_name(state: TaskState) -> &'static str {
    match state {
        TaskState::Waiting => "WAITING",
        TaskState::Leased => "LEASED",
        TaskState::Completed => "COMPLETED",
        TaskState::Failed => "FAILED",
        TaskState::Dead => "DEAD",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_created_and_described() {
        let sql = include_str!("tables.sql");
        let document = include_str!("../../../../../docs/tables.md");
        let jobs = JOBS.iter().map(|column| ("jobs", column.name));
        let attempts = ATTEMPTS.iter().map(|column| ("job_attempts", column.name));
        for (table, name) in jobs.chain(attempts) {
            let comment = format!("COMMENT ON COLUMN lessor.{table}.{name} IS '");
            let (_, text) =
                sql.split_once(&comment).unwrap_or_else(|| panic!("{table}.{name} has no comment"));
            let text = text.split("';").next().unwrap_or_default().replace("''", "'");
            assert!(
                document
                    .lines()
                    .any(|line| line.starts_with(&format!("| `{name}` |")) && line.contains(&text)),
                "docs/tables.md does not say of {table}.{name}: {text}"
            );
        }
        assert_eq!(sql.matches("COMMENT ON COLUMN").count(), JOBS.len() + ATTEMPTS.len());
    }
}
