//! Finds the lease that a report is about, also for a worker that knows no lease ids (C17).

use std::sync::Arc;

use authority::event::Event;
use authority::{Contract, LeaseRef, Position, Scope, TaskId};
use tonic::Status;
use wire::grpc::UpdateTaskStatusRequest;

use super::ownership::check_speaker;
use super::report;
use super::values::given;
use crate::app::App;
use crate::convert::lease_id::reference;
use crate::convert::missing_task::missing_task;
use crate::convert::names::name;
use crate::convert::{Code, Problem, parse_task_id};
use crate::edge::auth::Caller;

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

/// The lease that a report means without naming it: the live lease that the worker obtained by LeaseTask. If there is
/// none, the report is compared with the worker's earlier attempts: the one that made the same report, or else the last
/// one. A lease of another contract needs its id, because a worker's name proves nothing.
pub(super) async fn by_grants(
    app: &App,
    scope: &Scope,
    caller: &Caller,
    report: &UpdateTaskStatusRequest,
) -> Result<LeaseRef, Status> {
    let worker = name("worker_id", &report.worker_id)?;
    check_speaker(app, scope, caller, &worker).await.map_err(Problem::on_report)?;
    let unknown = || Problem::unknown_task(&report.task_id).on_report();
    let task = parse_task_id(&report.task_id).ok_or_else(unknown)?;
    let Some(detail) = app.handle.task(scope.clone(), task).await.map_err(Problem::from)? else {
        return Err(missing_task(app, scope, task).await.on_report().into());
    };
    caller.check_queues([&*detail.view.queue.name]).map_err(Problem::on_report)?;
    let reference = |(attempt, fencing_token): (u32, Position)| LeaseRef {
        scope: scope.clone(),
        worker: worker.clone(),
        task,
        attempt,
        fencing_token,
    };
    let current = (detail.view.task.attempt, detail.view.task.lease());
    if let (attempt, Some(lease)) = current
        && lease.worker == worker
        && lease.contract == Some(Contract::Scheduler)
        && !lease.is_over(app.handle.now())
        && [0, attempt].contains(&report.attempt)
    {
        return Ok(reference((attempt, lease.fencing_token)));
    }
    let granted = grants(app, scope, task, &worker, report.attempt).await?;
    let digest = report::digest(report).map_err(Problem::on_report)?;
    let is_repeat = |(_, fencing_token): &&(u32, Position)| {
        let earlier = detail.view.task.report_of(*fencing_token);
        earlier.is_some_and(|earlier| Some(earlier.digest) == digest)
    };
    granted.iter().rev().find(is_repeat).or(granted.last()).map(|grant| reference(*grant)).ok_or_else(|| {
        if let Some(suppressed) = app.grpc.refused_reports.admit(app.handle.now()) {
            let why = "the task was not leased to this worker by LeaseTask";
            tracing::error!(%task, %worker, why, suppressed, "report rejected");
        }
        let detail = "the task was not leased to this worker by LeaseTask, or not in this attempt; \
                      a lease of another contract needs its lease_id";
        Problem::new(Code::WrongWorker, detail).on_report().into()
    })
}

/// The attempts of a task that this worker was granted by LeaseTask, with their leases, as far back as the ledger has them.
async fn grants(
    app: &App,
    scope: &Scope,
    task: TaskId,
    worker: &Arc<str>,
    attempt: u32,
) -> Result<Vec<(u32, Position)>, Status> {
    let history = app.handle.history(scope.clone(), task).await.map_err(Problem::from)?;
    let history = history.ok_or_else(|| Problem::unknown_task(&task.to_string()).on_report())?;
    let granted = history.records.iter().filter_map(|record| match &record.event {
        Event::LeaseGranted(granted)
            if granted.worker == *worker && granted.contract == Some(Contract::Scheduler) =>
        {
            Some((granted.attempt, record.position))
        }
        _ => None,
    });
    Ok(granted.filter(|(granted, _)| [0, *granted].contains(&attempt)).collect())
}
