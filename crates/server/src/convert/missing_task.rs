//! The answer about a task that is not among the kept ones: it was purged, or there is none here.

use authority::{Scope, TaskId};

use crate::app::App;
use crate::convert::Problem;

/// Looks for a purged task in the ledger, in bounds. Another scope's task looks like none.
pub(crate) async fn missing_task(app: &App, scope: &Scope, task: TaskId) -> Problem {
    match app.handle.purged_task(scope.clone(), task).await {
        Ok(Some(purged)) => Problem::task_purged(task, purged),
        Ok(None) => Problem::unknown_task(&task.to_string()),
        Err(why) => why.into(),
    }
}
