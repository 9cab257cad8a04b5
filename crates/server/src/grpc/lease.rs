//! LeaseTask: a registered worker asks for work, and waits for it.

use std::time::Duration;

use authority::command::{Grant, LeaseTasks, ReleaseLease};
use authority::event::ReleaseCause;
use authority::limits::MAX_GRANTS;
use authority::{Command, Contract, Scope};
use coordinator::{Activity, BatchItem, Registered};
use tokio::time::Instant;
use tonic::{Request, Status};
use wire::grpc::{LeaseTaskRequest, LeaseTaskResponse};

use super::session::{Session, SessionState};
use super::values::{optional_name, parse_queues};
use super::{leased_task, register};
use crate::app::App;
use crate::convert::{Problem, content, grpc_status};
use crate::edge::auth::Caller;
use crate::edge::grpc_guard::Deadline;

/// How long before its caller's deadline a call ends its wait, so that the answer arrives in time.
const ANSWER_TIME: Duration = Duration::from_millis(100);

pub(super) async fn lease(
    app: &App,
    scope: Scope,
    caller: &Caller,
    request: &Request<LeaseTaskRequest>,
) -> Result<LeaseTaskResponse, Status> {
    let (asked, deadline) = (request.get_ref(), request.extensions().get::<Deadline>());
    let session = Session::parse(app, scope, caller, &asked.worker_id, &asked.session_id).await?;
    session.remember_holder().await?;
    let Registered { registration, status: said, .. } = session.registered().await?;
    let max_tasks = usize::try_from(asked.max_tasks)
        .map_err(|_| Problem::field("max_tasks", "must not be negative"))?
        .min(MAX_GRANTS);
    let properties = if asked.properties.is_empty() {
        registration.properties.clone()
    } else {
        register::properties("properties", &asked.properties)?
    };
    let command = LeaseTasks {
        scope: session.scope.clone(),
        worker: session.worker.clone(),
        session: registration.session.clone(),
        queues: parse_queues(&asked.queues)?,
        properties,
        max_tasks,
        request: optional_name("request_id", &asked.request_id)?.map(|id| content::request(&id)),
        contract: Contract::Scheduler,
    };
    caller.check_lease(&command)?;
    let wait = wait(app, asked.timeout_seconds, deadline)?;
    if max_tasks == 0 || said.activity == Activity::Draining {
        return Ok(LeaseTaskResponse::default());
    }
    let tenant = &session.scope.tenant;
    let mut grants = match app.waiting(tenant, wait, app.handle.lease(command, wait)).await? {
        Some(grants) => grants.map_err(Problem::from)?,
        None => Vec::new(),
    };
    // The session may have been replaced while it waited; what it was given then is the other's to get (W11).
    if matches!(session.state().await?, SessionState::Replaced) {
        give_back(app, &grants).await?;
        return Err(grpc_status::superseded(&session.worker));
    }
    // Grants that do not fit into a message that a client can read are given back at no cost.
    let rest = grants.split_off(leased_task::how_many_fit(&grants));
    give_back(app, &rest).await?;
    app.note_grants(caller, &grants).await;
    Ok(LeaseTaskResponse { tasks: grants.iter().map(|grant| leased_task::to_proto(app, grant)).collect() })
}

fn wait(app: &App, timeout_seconds: i64, deadline: Option<&Deadline>) -> Result<Duration, Problem> {
    let asked = u64::try_from(timeout_seconds)
        .map_err(|_| Problem::field("timeout_seconds", "must not be negative"))?;
    let wait = Duration::from_secs(asked).min(app.grpc.settings.long_poll_timeout);
    Ok(deadline.map_or(wait, |deadline| {
        wait.min(deadline.0.saturating_duration_since(Instant::now() + ANSWER_TIME))
    }))
}

/// Gives back leases that cannot be delivered.
pub(super) async fn give_back(app: &App, grants: &[Grant]) -> Result<(), Problem> {
    if grants.is_empty() {
        return Ok(());
    }
    let release = |grant: &Grant| {
        let release = ReleaseLease { lease: grant.lease_ref(), cause: ReleaseCause::Undelivered };
        BatchItem::Command(Command::ReleaseLease(release))
    };
    app.handle.decide(grants.iter().map(release).collect()).await?;
    Ok(())
}
