//! Calls about one task, which the path names.

use authority::TaskId;
use coordinator::TaskDetail;

use crate::convert::missing_task::missing_task;
use crate::convert::{Problem, ScopedPath, parse_task_id, task_json};

impl ScopedPath {
    pub(super) fn task(&self) -> Result<TaskId, Problem> {
        parse_task_id(&self.id).ok_or_else(|| Problem::unknown_task(&self.id))
    }

    /// Why the task is not here.
    pub(super) async fn missing(&self, task: TaskId) -> Problem {
        missing_task(&self.app, &self.scope, task).await
    }

    pub(super) async fn read(&self, task: TaskId) -> Result<wire::Task, Problem> {
        let detail = self.app.handle.task(self.scope.clone(), task).await?;
        self.to_wire(task, detail).await
    }

    /// The task as it is shown, or why it is not here.
    pub(super) async fn to_wire(
        &self,
        task: TaskId,
        detail: Option<Box<TaskDetail>>,
    ) -> Result<wire::Task, Problem> {
        match detail {
            Some(detail) => Ok(task_json::to_wire(*detail)),
            None => Err(self.missing(task).await),
        }
    }
}
