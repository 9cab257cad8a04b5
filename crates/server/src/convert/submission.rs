//! Converts a submitted task into the command for the coordinator, and checks its fields.

use std::sync::Arc;

use authority::command::{SubmitAnswer, SubmitTask};
use authority::limits::{MAX_ATTEMPTS, MAX_INLINE_BYTES, MAX_LEASE_MS, MAX_SPAN_MS, MIN_LEASE_MS};
use authority::{Backoff, Dedup, QueueKey, Scope, TaskId, TaskOptions, TaskState};
use coordinator::Unavailable;

use super::names::{name, optional_name, optional_within, properties, within};
use super::problem::{Code, Problem};
use super::{content, ids, task_context, time};
use crate::app::App;

pub(crate) fn command(app: &App, scope: &Scope, task: wire::SubmitTask) -> Result<SubmitTask, Problem> {
    command_with_id(ids::new_task_id(app.handle.now())?, scope, task)
}

/// The command for a task that has its id already.
pub(crate) fn command_with_id(
    id: TaskId,
    scope: &Scope,
    mut task: wire::SubmitTask,
) -> Result<SubmitTask, Problem> {
    let queue = Arc::new(QueueKey { scope: scope.clone(), name: name("queue", &task.queue)? });
    let payload = inline("payload", &task.payload)?;
    let delay_ms = within("delayMs", task.delay_ms.unwrap_or(0), 0..=MAX_SPAN_MS)?;
    let properties = properties("properties", task.properties.as_ref())?;
    let dedup = match optional_name("dedupKey", task.dedup_key.as_deref())? {
        None => None,
        Some(key) => {
            let content = content::submission(&payload, &properties)
                .map_err(|fault| Problem::field("payload", fault.what))?;
            Some(Dedup { key, content })
        }
    };
    let options = TaskOptions {
        dedup,
        deadline: task.deadline.map(|deadline| time::from_timestamp("deadline", deadline)).transpose()?,
        timeout_ms: optional_within("timeoutMs", task.timeout_ms, 1..=MAX_SPAN_MS)?,
        lease_ms: optional_within("leaseMs", task.lease_ms, MIN_LEASE_MS..=MAX_LEASE_MS)?,
        max_attempts: optional_within("maxAttempts", task.max_attempts, 1..=MAX_ATTEMPTS)?,
        backoff: task.backoff.as_ref().map(backoff).transpose()?,
        ..task_context::parse(&task.take_context())?
    };
    Ok(SubmitTask {
        id,
        queue,
        payload,
        priority: task.priority.unwrap_or(0),
        delay_ms,
        properties,
        options: (options != TaskOptions::default()).then(|| Arc::new(options)),
        operation: None,
    })
}

/// A payload or result that is kept with its task.
pub(crate) fn inline(field: &str, json: &wire::Json) -> Result<Arc<[u8]>, Problem> {
    let text = json.as_text().as_bytes();
    if text.len() > MAX_INLINE_BYTES {
        let detail = format!("{field}: must have at most {MAX_INLINE_BYTES} bytes, but has {}", text.len());
        return Err(Problem { field: Some(field.to_owned()), ..Problem::new(Code::PayloadTooLarge, detail) });
    }
    Ok(Arc::from(text))
}

/// A backoff whose missing parts follow the defaults. It is kept in thousandths.
pub(crate) fn backoff(backoff: &wire::Backoff) -> Result<Backoff, Problem> {
    let default = Backoff::default();
    let permille = |value: f64| (value * 1_000.0).round() as u32;
    let factor = optional_within("backoff.factor", backoff.factor, 1.0..=100.0)?;
    let jitter = optional_within("backoff.jitter", backoff.jitter, 0.0..=1.0)?;
    Ok(Backoff {
        initial_ms: optional_within("backoff.initialMs", backoff.initial_ms, 0..=MAX_SPAN_MS)?
            .unwrap_or(default.initial_ms),
        factor_permille: factor.map_or(default.factor_permille, permille),
        max_ms: optional_within("backoff.maxMs", backoff.max_ms, 0..=MAX_SPAN_MS)?.unwrap_or(default.max_ms),
        jitter_permille: jitter.map_or(default.jitter_permille, permille),
    })
}

/// Submits the tasks that were parsed, in one go. Each has an answer in its place: the task and its state, or a problem.
pub(crate) async fn submit_all(
    app: &App,
    tasks: impl Iterator<Item = Result<SubmitTask, Problem>>,
) -> Result<Vec<Result<(TaskId, TaskState), Problem>>, Unavailable> {
    let mut commands = Vec::with_capacity(tasks.size_hint().0);
    let parsed: Vec<_> = tasks.map(|task| task.map(|command| commands.push(command))).collect();
    let answers = if commands.is_empty() { Vec::new() } else { app.handle.submit_batch(commands).await? };
    let mut answers = answers.into_iter();
    // The coordinator answers each submit; fewer answers would be a bug in it.
    let unanswered = || Problem::new(Code::OutcomeUnknown, "the coordinator gave no answer for this task");
    let answer = |parsed: Result<(), Problem>| {
        parsed?;
        match answers.next().ok_or_else(unanswered)? {
            SubmitAnswer::Created(task) => Ok((task, TaskState::Waiting)),
            SubmitAnswer::Existing(view) => Ok((view.task.id, view.task.state())),
            SubmitAnswer::DedupConflict(existing) => Err(conflict(existing)),
            SubmitAnswer::Refused(why) => Err(why.into()),
        }
    };
    Ok(parsed.into_iter().map(answer).collect())
}

/// The dedup key belongs to a task with other content.
pub(crate) fn conflict(existing: TaskId) -> Problem {
    let detail = format!("dedupKey: belongs to task {existing}, whose payload or properties differ");
    let (field, task_id) = (Some("dedupKey".to_owned()), Some(existing.to_string()));
    Problem { field, task_id, ..Problem::new(Code::DedupConflict, detail) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_is_checked_and_filled_up() {
        let half = wire::Backoff { factor: Some(1.5), ..wire::Backoff::default() };
        assert_eq!(backoff(&half).unwrap(), Backoff { factor_permille: 1_500, ..Backoff::default() });
        let bad = [
            wire::Backoff { factor: Some(0.99), ..wire::Backoff::default() },
            wire::Backoff { factor: Some(f64::NAN), ..wire::Backoff::default() },
            wire::Backoff { jitter: Some(-0.1), ..wire::Backoff::default() },
            wire::Backoff { jitter: Some(1.1), ..wire::Backoff::default() },
            wire::Backoff { initial_ms: Some(u64::MAX), ..wire::Backoff::default() },
            wire::Backoff { max_ms: Some(u64::MAX), ..wire::Backoff::default() },
        ];
        assert!(bad.iter().all(|bad| backoff(bad).is_err()));
    }

    #[test]
    fn i3_a_payload_above_the_limit_is_too_large() {
        let json = |bytes: usize| wire::Json::from_value(&"x".repeat(bytes - 2)).unwrap();
        assert!(inline("payload", &json(MAX_INLINE_BYTES)).is_ok());
        assert_eq!(inline("payload", &json(MAX_INLINE_BYTES + 1)).unwrap_err().code, Code::PayloadTooLarge);
    }
}
