//! POST /v1/workers/{workerId}/drain, stop and resume: the orders of the operator for a worker.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use coordinator::{Order, OrderWorker, TenantWorker, WaitCondition};
use tokio::time::{Instant, timeout};
use wire::{MAX_WAIT_MS, Worker};

use super::workers;
use crate::app::App;
use crate::convert::names::name;
use crate::convert::{Code, Problem};
use crate::edge::operator::Operator;
use crate::edge::{Fails, InOrDefault, InPath, Out};

/// Defines the calls, one for each order.
macro_rules! orders {
    ($($(#[doc = $doc:tt])* $call:ident $path:tt $order:ident;)*) => {$(
        $(#[doc = $doc])*
        ///
        /// Only an operator of the worker's tenant may do this. On a server without authentication only the operator may, from
        /// the machine of the server and without the headers of a tenant or a workspace. Repeating it changes nothing.
        #[utoipa::path(
            post,
            path = $path,
            tag = "Workers",
            params(("workerId" = String, Path)),
            request_body(content = Option<wire::OrderWorker>),
            responses(
                (status = 200, body = Worker), Fails<400>, Fails<403>, Fails<404>, Fails<429>, Fails<503>
            )
        )]
        pub(crate) async fn $call(
            State(app): State<App>,
            operator: Operator,
            InPath(id): InPath<String>,
            InOrDefault(body): InOrDefault<wire::OrderWorker>,
        ) -> Result<Out<Worker>, Problem> {
            carry_out(&app, &operator, &id, body, Order::$order).await
        }
    )*};
}

orders! {
    /// Grant a worker nothing more; it finishes what it holds.
    drain "/v1/workers/{workerId}/drain" Drain;
    /// Drain a worker and ask it to stop. It stays drained when it starts again.
    stop "/v1/workers/{workerId}/stop" Stop;
    /// Let a drained worker take work again, and take back a request to stop.
    resume "/v1/workers/{workerId}/resume" Resume;
}

async fn carry_out(
    app: &App,
    operator: &Operator,
    id: &str,
    body: wire::OrderWorker,
    order: Order,
) -> Result<Out<Worker>, Problem> {
    let worker = name("workerId", id)?;
    let tenant = operator.tenant(body.tenant.as_deref())?;
    let unknown = |why: String| {
        Problem::new(
            Code::UnknownWorker,
            format!("{worker} of the tenant {tenant}: {why}; see lessor worker list"),
        )
    };
    let ordered = OrderWorker { tenant: tenant.clone(), worker: worker.clone(), order };
    app.handle.order(ordered).await?.map_err(|why| match Problem::from(why) {
        problem if problem.code == Code::UnknownWorker => unknown(problem.detail),
        problem => problem,
    })?;
    let wait = Duration::from_millis(body.wait_ms.unwrap_or(0).min(MAX_WAIT_MS));
    if !wait.is_zero() && order != Order::Resume {
        let done = until_done(app, &tenant, &worker, order, Instant::now() + wait);
        app.waiting(&tenant, wait, done).await?.transpose()?;
    }
    let known = app.handle.worker(tenant.clone(), worker.clone()).await?;
    let known = known.ok_or_else(|| unknown("it was forgotten".to_owned()))?;
    Ok(Out::ok(workers::to_wire(&known.view)))
}

/// Returns when the worker holds no lease and, if it is to stop, has left, or when the time has come.
async fn until_done(
    app: &App,
    tenant: &Arc<str>,
    worker: &Arc<str>,
    order: Order,
    until: Instant,
) -> Result<(), Problem> {
    let mut registrations = app.handle.watch_workers();
    loop {
        let known = app.handle.worker(tenant.clone(), worker.clone()).await?;
        let remaining = until.saturating_duration_since(Instant::now());
        let Some(TenantWorker { view, leases }) = known.map(|known| *known).filter(|_| !remaining.is_zero())
        else {
            return Ok(());
        };
        if let Some(held) = leases.first() {
            let (scope, task) = (held.lease.scope.clone(), held.lease.task);
            let Some(detail) = app.handle.task(scope.clone(), task).await? else { continue };
            if detail.view.task.lease().is_some_and(|lease| lease.fencing_token == held.lease.fencing_token) {
                let change = WaitCondition::ChangeAfter(detail.view.task.last);
                app.handle.wait_task(scope, task, change, remaining).await?;
            }
        } else if order == Order::Stop && view.registered.is_some() {
            // The end of the wait is seen in the next round.
            let _ = timeout(remaining, registrations.changed()).await;
        } else {
            return Ok(());
        }
    }
}
