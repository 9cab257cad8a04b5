//! POST /v1/leases: a worker asks for work, and waits for it.

use authority::command::{Grant, LeaseTasks};
use authority::limits::{MAX_GRANTS, MAX_POLL_QUEUES};
use authority::{Contract, Scope};
use wire::{DEFAULT_WAIT_MS, Lease, Leases};

use crate::app::App;
use crate::convert::names::{name, name_list, optional_name, properties};
use crate::convert::task_json::to_json;
use crate::convert::{Problem, Scoped, content, task_context, to_timestamp};
use crate::edge::auth::Caller;
use crate::edge::{Fails, In, Out};

/// Lease tasks, waiting for them if there are none.
#[utoipa::path(
    post,
    path = "/v1/leases",
    tag = "Leases",
    request_body = wire::LeaseTasks,
    responses(
        (status = 200, description = "The leases, none when the wait is over", body = Leases),
        Fails<400>, Fails<429>, Fails<503>
    )
)]
pub(crate) async fn lease(
    Scoped { app, scope }: Scoped,
    caller: Caller,
    In(request): In<wire::LeaseTasks>,
) -> Result<Out<Leases>, Problem> {
    let command = command(&scope, &request)?;
    caller.check_lease(&command)?;
    let grants = app.poll(command, request.wait_ms.unwrap_or(DEFAULT_WAIT_MS)).await?;
    app.note_grants(&caller, &grants).await;
    let leases = grants.iter().map(|grant| to_wire(&app, grant)).collect();
    Ok(Out::ok(Leases { leases }))
}

fn command(scope: &Scope, request: &wire::LeaseTasks) -> Result<LeaseTasks, Problem> {
    let worker = name("workerId", &request.worker_id)?;
    let queues = name_list("queues", &request.queues, MAX_POLL_QUEUES)?;
    let max_tasks = match request.max_tasks {
        Some(0) => {
            let what = format!("must be at least 1, but is 0; at most {MAX_GRANTS} are given at one time");
            return Err(Problem::field("maxTasks", what));
        }
        asked => asked.unwrap_or(1),
    };
    let request_id = optional_name("requestId", request.request_id.as_deref())?;
    Ok(LeaseTasks {
        scope: scope.clone(),
        worker,
        session: None,
        queues,
        properties: properties("properties", request.properties.as_ref())?,
        max_tasks: max_tasks.min(MAX_GRANTS as u64) as usize,
        request: request_id.map(|request_id| content::request(&request_id)),
        contract: Contract::Leases,
    })
}

fn to_wire(app: &App, grant: &Grant) -> Lease {
    let options = grant.options.as_deref();
    wire::in_task_context!(Lease {
        lease_id: app.lease_ids.make(&grant.lease_ref()),
        task_id: grant.task.to_string(),
        attempt: grant.attempt,
        queue: grant.queue.name.to_string(),
        payload: to_json(&grant.payload),
        granted_at: to_timestamp(grant.granted_at),
        expires_at: to_timestamp(grant.expires_at),
        heartbeat_interval_ms: grant.heartbeat_interval_ms,
        fencing_token: grant.fencing_token.0,
        deadline: options.and_then(|options| options.deadline).map(to_timestamp),
        timeout_ms: options.and_then(|options| options.timeout_ms),
        partial_progress: grant.partial_progress.as_deref().map(to_json),
        ..task_context::to_wire(options)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> wire::LeaseTasks {
        wire::LeaseTasks { worker_id: "w".into(), queues: vec!["q".into()], ..wire::LeaseTasks::default() }
    }

    fn parse(request: &wire::LeaseTasks) -> Result<LeaseTasks, Problem> {
        command(&Scope { tenant: "t".into(), workspace: "w".into() }, request)
    }

    #[test]
    fn too_many_tasks_are_clamped_and_none_is_refused() {
        assert_eq!(parse(&request()).unwrap().max_tasks, 1);
        let asked = |max_tasks| parse(&wire::LeaseTasks { max_tasks: Some(max_tasks), ..request() });
        assert_eq!(asked(u64::MAX).unwrap().max_tasks, 100);
        let refused = asked(0).unwrap_err();
        assert_eq!(refused.field.as_deref(), Some("maxTasks"));
        assert!(refused.detail.contains("at most 100"), "{}", refused.detail);
    }

    #[test]
    fn queues_are_counted_and_named() {
        let queues = |queues: Vec<String>| parse(&wire::LeaseTasks { queues, ..request() });
        assert_eq!(queues(Vec::new()).unwrap_err().field.as_deref(), Some("queues"));
        assert!(queues(vec!["q".into(); MAX_POLL_QUEUES + 1]).is_err());
        assert_eq!(queues(vec!["q".into(), "".into()]).unwrap_err().field.as_deref(), Some("queues[1]"));
    }

    #[test]
    fn the_same_request_id_is_the_same_request() {
        let named = |id: &str| {
            parse(&wire::LeaseTasks { request_id: Some(id.to_owned()), ..request() }).unwrap().request
        };
        assert_eq!(named("a"), named("a"));
        assert_ne!(named("a"), named("b"));
        assert_eq!(parse(&request()).unwrap().request, None);
    }
}
