//! The reports and heartbeats of one message: heartbeats are decided first, then reports in one go; answered in order.

use std::iter;

use coordinator::Answers;
use futures_util::{StreamExt, stream};
use tokio::time::Instant;
use wire::grpc::{
    LeaseHeartbeat, LeaseStatus, ReportAnswer, UpdateTaskStatusRequest, UpdateTaskStatusResponse, Verdict,
    WorkResponse,
};

use super::super::heartbeat;
use super::super::reference;
use super::super::report::{self, Asked};
use super::super::session::Session;
use super::super::values::{at_most, given};
use crate::app::PinnedOutputs;
use crate::convert::{Problem, grpc_status};
use crate::edge::auth::Caller;

const MAX_REPORTS: usize = 1_000;
/// Most reports of a message whose outputs are checked at the same time.
const MAX_CHECKS: usize = 64;

/// What one message asks for.
pub(super) struct Batch {
    pub reports: Vec<UpdateTaskStatusRequest>,
    pub heartbeats: Vec<LeaseHeartbeat>,
}

impl Batch {
    /// Refused as a whole when it is too large; then nothing of it is decided.
    pub(super) fn check(&self) -> Result<(), Problem> {
        at_most("leases", self.heartbeats.len(), heartbeat::MAX_NAMED_LEASES)?;
        at_most("reports", self.reports.len(), MAX_REPORTS)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.reports.is_empty() && self.heartbeats.is_empty()
    }

    /// Decides all of it. Each answer rests on durable records only.
    pub(super) async fn decide(self, session: Session, caller: Caller) -> WorkResponse {
        let received_at = Instant::now();
        let app = &session.app;
        // Before the content store is asked for outputs: the leases that are held must not wait for it.
        let leases = extend(&session, &caller, self.heartbeats).await;
        let mut asked = Vec::with_capacity(self.reports.len());
        for report in &self.reports {
            let mut own = coordinator::Batch::new();
            asked.push((parse(&session, &caller, report, &mut own).await, own));
        }
        let checks: Vec<_> = if app.has_executions() || caller.worker_only().is_some() {
            let checks = asked.iter().map(|asked| report::check_outputs(app, &caller, &asked.1, received_at));
            stream::iter(checks.collect::<Vec<_>>()).buffered(MAX_CHECKS).collect().await
        } else {
            Vec::new()
        };
        let checks = checks.into_iter().chain(iter::repeat_with(|| Ok(PinnedOutputs::default())));
        let mut items = coordinator::Batch::with_capacity(self.reports.len());
        let (mut parsed, mut pinned) = (Vec::with_capacity(self.reports.len()), Vec::new());
        for ((asked, own), checked) in asked.into_iter().zip(checks) {
            parsed.push(asked.and_then(|asked| {
                pinned.push(checked?);
                items.extend(own);
                Ok(asked)
            }));
        }
        let decided = if items.is_empty() { Ok(Answers::new()) } else { app.handle.decide(items).await };
        let reports = self.reports.into_iter().zip(parsed);
        let reports = match decided {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                let mut answer = |parsed: Result<Asked, Problem>| report::answer(parsed?, &mut answers);
                reports.map(|(report, parsed)| to_proto(report.lease_id, answer(parsed))).collect()
            }
            Err(why) => {
                let undecided = |parsed: Result<Asked, Problem>| parsed.and(Err(Problem::from(why)));
                reports.map(|(report, parsed)| to_proto(report.lease_id, undecided(parsed))).collect()
            }
        };
        WorkResponse { reports, leases, ..WorkResponse::default() }
    }
}

async fn extend(session: &Session, caller: &Caller, heartbeats: Vec<LeaseHeartbeat>) -> Vec<LeaseStatus> {
    if heartbeats.is_empty() {
        return Vec::new();
    }
    match heartbeat::extend_named(session, caller, &heartbeats).await {
        Ok(leases) => leases,
        Err(problem) => heartbeat::undecided(heartbeats, &problem),
    }
}

async fn parse(
    session: &Session,
    caller: &Caller,
    report: &UpdateTaskStatusRequest,
    items: &mut coordinator::Batch,
) -> Result<Asked, Problem> {
    let named = given(&report.worker_id).unwrap_or(&session.worker);
    caller.check_worker(named)?;
    let lease = reference::by_lease_id(&session.app, &session.scope, named, report)?;
    caller.check_held(&session.app.handle, &lease).await?;
    report::items(lease, report, items)
}

fn to_proto(lease_id: String, answer: Result<UpdateTaskStatusResponse, Problem>) -> ReportAnswer {
    let lease_id = heartbeat::echo(lease_id);
    match answer {
        Ok(answer) => ReportAnswer { lease_id, answer: Some(answer), problem: None },
        Err(problem) => {
            let problem = problem.on_report();
            let rejected = problem.verdict == Some(wire::Verdict::Rejected);
            let verdict = if rejected { Verdict::Rejected } else { Verdict::Unspecified };
            let answer =
                UpdateTaskStatusResponse { verdict: verdict.into(), ..UpdateTaskStatusResponse::default() };
            ReportAnswer { lease_id, answer: Some(answer), problem: Some(grpc_status::item(problem)) }
        }
    }
}
