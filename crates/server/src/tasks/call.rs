//! A call about one task, which its path names.

use authority::{Scope, TaskId};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::app::App;
use crate::convert::{Problem, parse_task_id, scope, task_json};
use crate::edge::InPath;

pub(crate) struct TaskCall {
    pub app: App,
    pub scope: Scope,
    task_id: String,
}

impl FromRequestParts<App> for TaskCall {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<TaskCall, Problem> {
        let scope = scope::of(&parts.headers)?;
        let InPath(task_id) = InPath::from_request_parts(parts, app).await?;
        Ok(TaskCall { app: app.clone(), scope, task_id })
    }
}

impl TaskCall {
    pub(super) fn task(&self) -> Result<TaskId, Problem> {
        parse_task_id(&self.task_id).ok_or_else(|| self.unknown())
    }

    pub(super) fn unknown(&self) -> Problem {
        Problem::unknown_task(&self.task_id)
    }

    /// A task as it is now.
    pub(super) async fn read(&self, task: TaskId) -> Result<wire::Task, Problem> {
        let detail = self.app.handle.task(self.scope.clone(), task).await?;
        Ok(task_json::to_wire(*detail.ok_or_else(|| self.unknown())?))
    }
}
