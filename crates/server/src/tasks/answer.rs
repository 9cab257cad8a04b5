//! A task of the authority as it is shown on the wire.

use std::sync::Arc;

use authority::{Category, Phase, QueueConfig, QueueKey, QueueSettings, TaskState};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coordinator::TaskDetail;

use crate::app::App;
use crate::problem::Problem;
use crate::time::shown;

/// The task, with the defaults of its queue looked up where it has none of its own.
pub async fn of(app: &App, detail: TaskDetail) -> Result<wire::Task, Problem> {
    let own = detail.view.task.options.as_ref().and_then(|options| options.max_attempts);
    let default = match own {
        Some(own) => own,
        None => default_attempts(app, &detail.view.queue).await?,
    };
    Ok(task(detail, default))
}

/// How many attempts a task of the queue has when it does not say.
pub async fn default_attempts(app: &App, queue: &QueueKey) -> Result<u32, Problem> {
    Ok(settings(app, queue).await?.max_attempts)
}

/// The settings of a queue, which are the defaults while it does not exist.
pub async fn settings(app: &App, queue: &QueueKey) -> Result<QueueSettings, Problem> {
    let view = app.handle().queue(queue.clone()).await?;
    Ok(view.map_or_else(|| QueueConfig::default().settings(&queue.name), |view| view.settings))
}

pub fn task(detail: TaskDetail, default_attempts: u32) -> wire::Task {
    let TaskDetail { view, progress } = detail;
    let task = view.task;
    let options = task.options.as_deref().cloned().unwrap_or_default();
    let error = task.last_error.as_deref().map(self::error);
    let (reason, reason_detail) = match &task.phase {
        Phase::Dead { reason, detail, .. } => {
            (Some(reason.name().to_owned()), detail.as_ref().map(|detail| detail.to_string()))
        }
        Phase::Failed { .. } => task.last_error.as_ref().map_or((None, None), |error| {
            (Some(error.category.name().to_owned()), Some(error.message.to_string()))
        }),
        _ => (None, None),
    };
    wire::Task {
        task_id: task.id.to_string(),
        queue: view.queue.name.to_string(),
        state: state(task.state()),
        reason,
        reason_detail,
        attempt: task.attempt,
        max_attempts: options.max_attempts.unwrap_or(default_attempts),
        priority: task.priority,
        payload: json(&task.payload),
        result: match &task.phase {
            Phase::Completed { result, .. } => Some(json(result)),
            _ => None,
        },
        error: error.filter(|_| task.state() != TaskState::Completed),
        properties: task
            .properties
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect(),
        dedup_key: options.dedup.map(|dedup| dedup.key.to_string()),
        created_at: shown(task.created_at),
        not_before: match task.phase {
            Phase::Waiting { not_before, .. } => not_before.map(shown),
            _ => None,
        },
        deadline: options.deadline.map(shown),
        timeout_ms: options.timeout_ms,
        finished_at: task.ended().map(|(at, _)| shown(at)),
        lease: task.lease().map(|lease| wire::TaskLease {
            worker_id: lease.worker.to_string(),
            attempt: task.attempt,
            granted_at: shown(lease.granted_at),
            expires_at: shown(lease.expires_at),
            started_by: text(&lease.started_by),
        }),
        cancel_requested: task.cancel.as_ref().map(|cancel| wire::CancelRequested {
            reason: cancel.reason.to_string(),
            at: shown(cancel.requested_at),
            grace_until: shown(cancel.grace_until),
        }),
        run_id: text(&options.run_id),
        asset_id: text(&options.asset_id),
        task_key: text(&options.task_key),
        resources: options.resources.as_deref().map(json),
        redrive_of: options.redrive_of.map(|task| task.to_string()),
        progress: progress.map(|progress| wire::Progress {
            progress_pct: progress.percent,
            message: text(&progress.message),
            at: shown(progress.at),
        }),
    }
}

pub fn error(error: &authority::TaskError) -> wire::TaskError {
    wire::TaskError {
        category: category(error.category),
        code: text(&error.code),
        message: error.message.to_string(),
    }
}

/// Content that is not JSON, which another contract may have stored, is shown in base64.
pub fn json(bytes: &[u8]) -> wire::Json {
    let text = std::str::from_utf8(bytes).ok();
    text.and_then(|text| wire::Json::from_text(text).ok())
        .or_else(|| wire::Json::from_value(&STANDARD.encode(bytes)).ok())
        .unwrap_or_else(wire::Json::null)
}

pub fn text(text: &Option<Arc<str>>) -> Option<String> {
    text.as_ref().map(|text| text.to_string())
}

pub fn state(state: TaskState) -> wire::TaskState {
    match state {
        TaskState::Waiting => wire::TaskState::Waiting,
        TaskState::Leased => wire::TaskState::Leased,
        TaskState::Completed => wire::TaskState::Completed,
        TaskState::Failed => wire::TaskState::Failed,
        TaskState::Dead => wire::TaskState::Dead,
    }
}

pub fn authority_state(state: wire::TaskState) -> TaskState {
    match state {
        wire::TaskState::Waiting => TaskState::Waiting,
        wire::TaskState::Leased => TaskState::Leased,
        wire::TaskState::Completed => TaskState::Completed,
        wire::TaskState::Failed => TaskState::Failed,
        wire::TaskState::Dead => TaskState::Dead,
    }
}

pub fn category(category: Category) -> wire::ErrorCategory {
    match category {
        Category::UserCode => wire::ErrorCategory::UserCode,
        Category::DataQuality => wire::ErrorCategory::DataQuality,
        Category::Infrastructure => wire::ErrorCategory::Infrastructure,
        Category::Configuration => wire::ErrorCategory::Configuration,
        Category::Timeout => wire::ErrorCategory::Timeout,
        Category::Cancelled => wire::ErrorCategory::Cancelled,
    }
}

pub fn authority_category(category: wire::ErrorCategory) -> Category {
    match category {
        wire::ErrorCategory::UserCode => Category::UserCode,
        wire::ErrorCategory::DataQuality => Category::DataQuality,
        wire::ErrorCategory::Infrastructure => Category::Infrastructure,
        wire::ErrorCategory::Configuration => Category::Configuration,
        wire::ErrorCategory::Timeout => Category::Timeout,
        wire::ErrorCategory::Cancelled => Category::Cancelled,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_categories_keep_their_names() {
        for one in wire::TaskState::ALL {
            assert_eq!(state(authority_state(one)), one);
        }
        for one in Category::ALL {
            assert_eq!(authority_category(category(one)), one);
            assert_eq!(serde_json::to_value(category(one)).unwrap(), one.name());
        }
    }

    #[test]
    fn content_that_is_not_json_is_shown_in_base64() {
        assert_eq!(json(b"{\"a\": 1}").as_text(), "{\"a\": 1}");
        assert_eq!(json(b"\xff\x00").as_text(), "\"/wA=\"");
        assert_eq!(json(b"{").as_text(), "\"ew==\"");
    }
}
