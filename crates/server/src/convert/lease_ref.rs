//! Verifies the lease id of a call and returns the lease that it names.

use authority::{LeaseRef, Scope};

use crate::app::App;
use crate::convert::names::name;
use crate::convert::{Code, Problem, parse_task_id};

/// The lease that the id names, if it was granted to this worker and, where the worker says, for this task.
pub(crate) fn reference(
    app: &App,
    scope: &Scope,
    lease_id: &str,
    worker_id: &str,
    task_id: Option<&str>,
) -> Result<LeaseRef, Problem> {
    let worker = name("workerId", worker_id)?;
    let lease = app.lease_ids.verify(lease_id, scope, &worker).ok_or_else(|| {
        Problem::new(Code::BadLeaseId, "the lease id is damaged, made up, or belongs to another worker")
    })?;
    match task_id {
        Some(task_id) if parse_task_id(task_id) != Some(lease.task) => {
            Err(Problem::new(Code::WrongTask, "taskId: is not the task that the lease was granted for"))
        }
        _ => Ok(lease),
    }
}
