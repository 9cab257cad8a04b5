//! Converts a task of the authority to its JSON shape.

use std::sync::Arc;

use authority::{Category, Phase, TaskState};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coordinator::TaskDetail;
use wire::strict_json::{self, Fault, MAX_JSON_DEPTH};

use super::problem::Problem;
use super::task_context;
use super::time::to_timestamp;

/// A task with the settings in force for it.
pub fn to_wire(detail: TaskDetail) -> wire::Task {
    let TaskDetail { view, progress } = detail;
    let task = view.task;
    let options = task.options.as_deref();
    let details = task.details.as_deref();
    let error = task.last_error.as_deref().map(|error| wire::TaskError {
        stack_trace: details.and_then(|details| to_text(&details.stack_trace)),
        ..error_to_wire(error)
    });
    let (reason, reason_detail) = match &task.phase {
        Phase::Dead { reason, detail, .. } => {
            (Some(reason.name().to_owned()), detail.as_ref().map(|detail| detail.to_string()))
        }
        Phase::Failed { .. } => task.last_error.as_ref().map_or((None, None), |error| {
            (Some(error.category.name().to_owned()), Some(error.message.to_string()))
        }),
        _ => (None, None),
    };
    wire::in_task_context!(wire::Task {
        task_id: task.id.to_string(),
        queue: view.queue.name.to_string(),
        state: state_to_wire(task.state()),
        reason,
        reason_detail,
        attempt: task.attempt,
        used_attempts: task.used_attempts(),
        max_attempts: view.settings.max_attempts,
        priority: task.priority,
        payload: to_json(&task.payload),
        result: match &task.phase {
            Phase::Completed { result, .. } => Some(to_json(result)),
            _ => None,
        },
        error: error.filter(|_| task.state() != TaskState::Completed),
        metrics: details.and_then(|details| details.metrics.as_deref()).map(to_json),
        partial_progress: task.partial_progress().map(|progress| to_json(progress)),
        cancelled_during_phase: details.and_then(|details| to_text(&details.cancelled_during_phase)),
        properties: task
            .properties
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        dedup_key: options.and_then(|options| options.dedup.as_ref()).map(|dedup| dedup.key.to_string()),
        created_at: to_timestamp(task.created_at),
        not_before: match task.phase {
            Phase::Waiting { not_before, .. } => not_before.map(to_timestamp),
            _ => None,
        },
        deadline: options.and_then(|options| options.deadline).map(to_timestamp),
        timeout_ms: options.and_then(|options| options.timeout_ms),
        finished_at: task.ended().map(|(at, _)| to_timestamp(at)),
        lease: task.lease().map(|lease| wire::TaskLease {
            worker_id: lease.worker.to_string(),
            attempt: task.attempt,
            granted_at: to_timestamp(lease.granted_at),
            expires_at: to_timestamp(lease.expires_at),
            started_by: to_text(&lease.started_by),
        }),
        cancel_requested: task.cancel.as_ref().map(|cancel| wire::CancelRequested {
            reason: cancel.reason.to_string(),
            at: to_timestamp(cancel.requested_at),
            grace_until: to_timestamp(cancel.grace_until),
        }),
        redrive_of: options.and_then(|options| options.redrive_of).map(|task| task.to_string()),
        progress: progress.map(|progress| wire::Progress {
            progress_pct: progress.percent,
            message: to_text(&progress.message),
            at: to_timestamp(progress.at),
        }),
        ..task_context::to_wire(options)
    })
}

pub(crate) fn error_to_wire(error: &authority::TaskError) -> wire::TaskError {
    wire::TaskError {
        category: category_to_wire(error.category),
        code: to_text(&error.code),
        message: error.message.to_string(),
        stack_trace: None,
    }
}

/// Content that is not JSON, which another contract may have stored, is shown in base64.
pub fn to_json(bytes: &[u8]) -> wire::Json {
    let text = std::str::from_utf8(bytes).ok();
    text.and_then(|text| wire::Json::from_text(text).ok())
        .or_else(|| wire::Json::from_value(&STANDARD.encode(bytes)).ok())
        .unwrap_or_else(wire::Json::null)
}

pub(crate) fn to_text(text: &Option<Arc<str>>) -> Option<String> {
    text.as_ref().map(|text| text.to_string())
}

/// Reads a JSON text that came as bytes, held to the same rules as a request over HTTP; none when it is empty.
pub(crate) fn parse_json(field: &str, text: &[u8]) -> Result<Option<wire::Json>, Problem> {
    if text.is_empty() {
        return Ok(None);
    }
    strict_json::check(text, MAX_JSON_DEPTH).map_err(|fault| not_json(field, &fault))?;
    let parsed = std::str::from_utf8(text).ok().and_then(|text| wire::Json::from_text(text).ok());
    parsed.map(Some).ok_or_else(|| Problem::field(field, "is not JSON"))
}

pub(crate) fn not_json(field: &str, fault: &Fault) -> Problem {
    let place = if fault.path.is_empty() { String::new() } else { format!("{}: ", fault.path) };
    Problem::field(field, format!("{place}{}", fault.what))
}

/// Converts between an enumeration of the authority and the one of the same variants on the wire.
macro_rules! same_variants {
    ($vis:vis $to:ident, $from:ident: $Ours:ident = wire::$Theirs:ident { $($Variant:ident),* }) => {
        $vis fn $to(value: $Ours) -> wire::$Theirs {
            match value { $($Ours::$Variant => wire::$Theirs::$Variant,)* }
        }

        pub(crate) fn $from(value: wire::$Theirs) -> $Ours {
            match value { $(wire::$Theirs::$Variant => $Ours::$Variant,)* }
        }
    };
}

same_variants!(pub state_to_wire, state_from_wire:
    TaskState = wire::TaskState { Waiting, Leased, Completed, Failed, Dead });
same_variants!(pub(crate) category_to_wire, category_from_wire:
    Category = wire::ErrorCategory { UserCode, DataQuality, Infrastructure, Configuration, Timeout, Cancelled });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_categories_keep_their_names() {
        for one in wire::TaskState::ALL {
            assert_eq!(state_to_wire(state_from_wire(one)), one);
        }
        for one in Category::ALL {
            assert_eq!(category_from_wire(category_to_wire(one)), one);
            assert_eq!(serde_json::to_value(category_to_wire(one)).unwrap(), one.name());
        }
    }

    #[test]
    fn content_that_is_not_json_is_shown_in_base64() {
        assert_eq!(to_json(b"{\"a\": 1}").as_text(), "{\"a\": 1}");
        assert_eq!(to_json(b"\xff\x00").as_text(), "\"/wA=\"");
        assert_eq!(to_json(b"{").as_text(), "\"ew==\"");
    }
}
