//! The OpenAPI document: generated from the routes, served, and committed as docs/openapi.json.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::{IntoResponse, Response};
use utoipa::OpenApi;

use crate::router::document;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Lessor",
        description = "Leases work to workers that may crash, stall, repeat themselves or lie, and accepts exactly one \
                       outcome for each task. Every request may name its tenant and workspace in the headers \
                       lessor-tenant and lessor-workspace; both are `default` when missing. Errors are \
                       application/problem+json with a stable `code`, but for the callback contract, which has \
                       bodies of its own.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    tags(
        (name = "Tasks", description = "For people and services: submit work and see what became of it."),
        (name = "Queues", description = "Settings and counts. A queue exists from its first use, with defaults."),
        (name = "Leases", description = "The worker protocol: lease, heartbeat, report, and obey the verdict."),
        (name = "Claims", description = "The claim contract: workers poll for one job at a time, in snake_case."),
        (name = "Callbacks", description = "The callback contract: workers that tasks were pushed to report with a task token."),
        (name = "Keys", description = "API keys, for servers that admit their holders only."),
        (name = "Workers", description = "Who was heard of lately."),
        (name = "Health", description = "For load balancers and monitors.")
    ),
    components(schemas(wire::CallbackProblem, wire::ClaimProblem, wire::Problem, wire::TaskEnvelope))
)]
struct Header;

/// All of the document but the routes.
pub fn header() -> utoipa::openapi::OpenApi {
    Header::openapi()
}

/// The document as it is served and committed.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let text = document().to_pretty_json().unwrap_or_default();
        format!("{text}\n")
    });
    &TEXT
}

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "Health",
    responses((status = 200, description = "The OpenAPI document", content_type = "application/json"))
)]
pub async fn serve() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], text()).into_response()
}
