//! Finds the lease that a report is about, also for a worker that knows no lease ids (C17).

use std::sync::Arc;

use authority::event::Event;
use authority::{LeaseRef, Position, Scope};
use tonic::Status;
use wire::grpc::UpdateTaskStatusRequest;

use super::values::given;
use crate::app::App;
use crate::convert::lease_id::reference;
use crate::convert::names::name;
use crate::convert::{Code, Problem, grpc_status, parse_task_id};

pub(super) fn by_lease_id(
    app: &App,
    scope: &Scope,
    worker_id: &str,
    report: &UpdateTaskStatusRequest,
) -> Result<LeaseRef, Problem> {
    let lease = reference(app, scope, &report.lease_id, worker_id, given(&report.task_id))?;
    if report.attempt != 0 && report.attempt != lease.attempt {
        Err(Problem::new(Code::WrongTask, "attempt: is not the one that the lease was granted for"))
    } else {
        Ok(lease)
    }
}

/// The lease that a report means without naming it: the only one that the task ever granted to this worker, or the one
/// of the attempt that the report names. Whether that lease still has authority is judged like any other's; a report
/// that could mean several is refused, because it might speak of an attempt that is over.
pub(super) async fn by_grants(
    app: &App,
    scope: &Scope,
    report: &UpdateTaskStatusRequest,
) -> Result<LeaseRef, Status> {
    let worker = name("worker_id", &report.worker_id)?;
    let unknown = || Problem::unknown_task(&report.task_id).on_report();
    let task = parse_task_id(&report.task_id).ok_or_else(unknown)?;
    let detail = app.handle.task(scope.clone(), task).await.map_err(Problem::from)?.ok_or_else(unknown)?;
    let reference = |(attempt, lease): (u32, Position)| LeaseRef {
        scope: scope.clone(),
        worker: worker.clone(),
        task,
        attempt,
        fencing_token: lease,
    };
    let current = detail.view.task.lease().filter(|lease| lease.worker == worker);
    let attempt = detail.view.task.attempt;
    if let Some(lease) = current
        && (attempt == 1 || report.attempt == attempt)
    {
        return Ok(reference((attempt, lease.fencing_token)));
    }
    let granted = grants(app, scope, task, &worker, report.attempt).await?;
    match granted[..] {
        [] => {
            let detail = "the task was never leased to this worker, or not in this attempt";
            Err(Problem::new(Code::WrongWorker, detail).on_report().into())
        }
        [one] => Ok(reference(one)),
        _ => Err(needs_lease_id()),
    }
}

/// The attempts of a task that this worker was granted, with their leases, as the ledger has them.
async fn grants(
    app: &App,
    scope: &Scope,
    task: authority::TaskId,
    worker: &Arc<str>,
    attempt: u32,
) -> Result<Vec<(u32, Position)>, Status> {
    let history = app.handle.history(scope.clone(), task).await.map_err(Problem::from)?;
    let history = history.ok_or_else(|| Problem::unknown_task(&task.to_string()).on_report())?;
    if history.truncated {
        // There may have been others.
        return Err(needs_lease_id());
    }
    let granted = history.records.iter().filter_map(|record| match &record.event {
        Event::LeaseGranted(granted) if granted.worker == *worker => Some((granted.attempt, record.position)),
        _ => None,
    });
    Ok(granted.filter(|(granted, _)| attempt == 0 || attempt == *granted).collect())
}

fn needs_lease_id() -> Status {
    let detail =
        "the task was leased to this worker more than once: the report must carry its lease_id or attempt";
    grpc_status::precondition("lease_id_needed", detail)
}
