//! Calls about one task, which the path names.

use authority::TaskId;

use crate::convert::{Problem, ScopedPath, parse_task_id, task_json};

impl ScopedPath {
    pub(super) fn task(&self) -> Result<TaskId, Problem> {
        parse_task_id(&self.id).ok_or_else(|| self.unknown())
    }

    pub(super) fn unknown(&self) -> Problem {
        Problem::unknown_task(&self.id)
    }

    pub(super) async fn read(&self, task: TaskId) -> Result<wire::Task, Problem> {
        let detail = self.app.handle.task(self.scope.clone(), task).await?;
        Ok(task_json::to_wire(*detail.ok_or_else(|| self.unknown())?))
    }
}
