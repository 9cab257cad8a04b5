//! Every route, each with its description, so that the OpenAPI document cannot differ from what is served.

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::admin::{health, instances, openapi, worker_orders, workers};
use crate::app::App;
use crate::edge::{consistency, fallback, limits};
use crate::{cache, callbacks, claims, grpc, keys, leases, metrics, queues, reapi, tasks};

/// The routes alone: callers are authenticated and authorized before, by the listener.
pub fn router(app: App) -> Router {
    let (mut router, _) = described().split_for_parts();
    let mut services = wire::grpc::SERVICE_NAMES.to_vec();
    if let Some((content, executions)) = app.content.as_ref().zip(app.executions.as_ref()) {
        router = router.merge(reapi::routes(&app, content, executions)).merge(cache::routes());
        services.extend(reapi::SERVICE_NAMES);
    }
    let router = router
        .route("/metrics", get(metrics::serve))
        .merge(grpc::routes(&app, services))
        .fallback(fallback::not_found)
        .method_not_allowed_fallback(fallback::method_not_allowed);
    let router = if app.limits.limits_requests() {
        router.layer(from_fn_with_state(app.clone(), limits::layer))
    } else {
        router
    };
    let router = if app.handle.has_other_nodes() {
        router.layer(from_fn_with_state(app.clone(), consistency::layer))
    } else {
        router
    };
    router.with_state(app)
}

pub fn document() -> OpenApi {
    described().split_for_parts().1
}

fn described() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(openapi::header())
        .routes(routes!(tasks::submit::submit, tasks::list::list))
        .routes(routes!(tasks::batch::submit_batch))
        .routes(routes!(tasks::get::get))
        .routes(routes!(tasks::history::history))
        .routes(routes!(tasks::cancel::cancel))
        .routes(routes!(tasks::redrive::redrive))
        .routes(routes!(queues::list::list))
        .routes(routes!(queues::get::get, queues::put::put))
        .routes(routes!(leases::lease::lease))
        .routes(routes!(leases::heartbeat::heartbeat))
        .routes(routes!(leases::complete::complete))
        .routes(routes!(leases::fail::fail))
        .routes(routes!(leases::release::release))
        .routes(routes!(claims::claim::claim))
        .routes(routes!(claims::heartbeat::heartbeat))
        .routes(routes!(claims::complete::complete))
        .routes(routes!(claims::fail::fail))
        .routes(routes!(callbacks::started::started))
        .routes(routes!(callbacks::heartbeat::heartbeat))
        .routes(routes!(callbacks::completed::completed))
        .routes(routes!(callbacks::rotate::rotate))
        .routes(routes!(keys::create::create, keys::list::list))
        .routes(routes!(keys::revoke::revoke))
        .routes(routes!(workers::list))
        .routes(routes!(worker_orders::drain))
        .routes(routes!(worker_orders::stop))
        .routes(routes!(worker_orders::resume))
        .routes(routes!(instances::list))
        .routes(routes!(health::live))
        .routes(routes!(health::ready))
        .routes(routes!(openapi::serve))
}
