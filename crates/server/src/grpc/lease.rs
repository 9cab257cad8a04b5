//! LeaseTask: a registered worker asks for work, and waits for it.

use std::sync::Arc;
use std::time::Duration;

use authority::command::{Grant, LeaseTasks, ReleaseLease};
use authority::event::ReleaseCause;
use authority::limits::MAX_GRANTS;
use authority::{Command, Scope};
use coordinator::{Activity, BatchItem, Registered};
use tonic::{Request, Status};
use wire::grpc::{LeaseTaskRequest, LeaseTaskResponse};

use super::values::{given, optional_name};
use super::{leased_task, queues, register};
use crate::app::App;
use crate::convert::content;
use crate::convert::grpc_status;
use crate::convert::names::name;
use crate::convert::problem::Problem;
use crate::edge::grpc_guard::Deadline;

/// How long before its caller's deadline a call ends its wait, so that the answer arrives in time.
const ANSWER_TIME: Duration = Duration::from_millis(100);

pub(super) async fn lease(
    app: &App,
    scope: &Scope,
    request: &Request<LeaseTaskRequest>,
) -> Result<LeaseTaskResponse, Status> {
    let (asked, deadline) = (request.get_ref(), request.extensions().get::<Deadline>());
    let worker = name("worker_id", &asked.worker_id)?;
    let session = optional_name("session_id", &asked.session_id)?;
    let Registered { registration, status: said } = registered(app, scope, &worker, session.as_ref())?;
    let max_tasks = usize::try_from(asked.max_tasks)
        .map_err(|_| Problem::field("max_tasks", "must not be negative"))?
        .min(MAX_GRANTS);
    let properties = if asked.properties.is_empty() {
        registration.properties.clone()
    } else {
        register::properties("properties", &asked.properties)?
    };
    let command = LeaseTasks {
        scope: scope.clone(),
        worker: worker.clone(),
        session: registration.session.clone(),
        queues: queues::parse(&asked.queues)?,
        properties,
        max_tasks,
        request: given(&asked.request_id)
            .map(|id| name("request_id", id))
            .transpose()?
            .map(|id| content::request(&id)),
    };
    let wait = wait(app, asked.timeout_seconds, deadline)?;
    if max_tasks == 0 || said.activity == Activity::Draining {
        return Ok(LeaseTaskResponse::default());
    }
    let grants = match app.waiting(wait, app.handle().lease(command, wait)).await? {
        Some(grants) => grants.map_err(Problem::from)?,
        None => Vec::new(),
    };
    // The session may have been replaced while it waited; what it was given then is the other's to get (W11).
    if matches!(standing(app, scope, &worker, session.as_ref()), Standing::Replaced) {
        give_back(app, &grants).await?;
        return Err(grpc_status::superseded(&worker));
    }
    let grants = what_fits(app, grants).await?;
    Ok(LeaseTaskResponse { tasks: grants.iter().map(|grant| leased_task::to_proto(app, grant)).collect() })
}

/// What the registry says of a worker's session.
pub(super) enum Standing {
    Current(Registered),
    /// Another session of the worker is registered.
    Replaced,
    /// The worker was silent for too long, or forgotten; it may register again.
    Unknown,
}

pub(super) fn standing(app: &App, scope: &Scope, worker: &Arc<str>, session: Option<&Arc<str>>) -> Standing {
    match app.handle().registry().registered(scope, worker, app.handle().now()) {
        None => Standing::Unknown,
        Some(other) if session.is_some() && other.registration.session.as_ref() != session => {
            Standing::Replaced
        }
        Some(registered) => Standing::Current(registered),
    }
}

/// The registration of a worker, which must be that of the session that asks (S3-33).
pub(super) fn registered(
    app: &App,
    scope: &Scope,
    worker: &Arc<str>,
    session: Option<&Arc<str>>,
) -> Result<Registered, Status> {
    match standing(app, scope, worker, session) {
        Standing::Current(registered) => Ok(registered),
        Standing::Replaced => Err(grpc_status::superseded(worker)),
        Standing::Unknown => Err(grpc_status::not_registered(worker)),
    }
}

fn wait(app: &App, timeout_seconds: i64, deadline: Option<&Deadline>) -> Result<Duration, Problem> {
    let asked = u64::try_from(timeout_seconds)
        .map_err(|_| Problem::field("timeout_seconds", "must not be negative"))?;
    let wait = Duration::from_secs(asked).min(app.grpc().settings().long_poll_timeout);
    Ok(deadline.map_or(wait, |deadline| wait.min(deadline.left().saturating_sub(ANSWER_TIME))))
}

/// As many grants as a client can read in one message; the others are given back at no cost.
async fn what_fits(app: &App, mut grants: Vec<Grant>) -> Result<Vec<Grant>, Problem> {
    let fit = leased_task::how_many_fit(&grants);
    give_back(app, &grants.split_off(fit)).await?;
    Ok(grants)
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
    app.handle().decide(grants.iter().map(release).collect()).await?;
    Ok(())
}
