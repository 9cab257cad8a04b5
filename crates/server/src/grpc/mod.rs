//! The worker service over gRPC (HTTP/2 with prior knowledge), with reflection and the standard health service. One call to
//! a file; each translates into commands for the coordinator and decides nothing.

mod health;
mod heartbeat;
mod lease;
mod leased_task;
mod ownership;
mod reference;
mod register;
mod report;
mod scheduler;
mod sender_faults;
mod service;
mod session;
mod submit;
mod values;
mod work;

pub use scheduler::Scheduler;
pub(crate) use scheduler::Shared;

use axum::Router;
use axum::middleware::from_fn_with_state;
use tonic::codegen::http::Request;
use tower::ServiceBuilder;
use wire::grpc::SERVICE_NAMES;
use wire::grpc::worker_scheduler_server::WorkerSchedulerServer;

use crate::app::App;
use crate::edge::grpc_guard::guard;
use crate::edge::json::{MAX_BATCH_BODY_BYTES, MAX_BODY_BYTES};
use service::Service;

/// Largest message of a worker in a stream.
const MAX_STREAM_MESSAGE_BYTES: usize = 4 * 1_024 * 1_024;
/// Largest message that is sent, which is what clients accept unless they are told otherwise.
const MAX_SENT_MESSAGE_BYTES: usize = 4 * 1_024 * 1_024;
/// Largest question to the health and reflection services.
const MAX_QUESTION_BYTES: usize = 16 * 1_024;

/// Everything that is served over gRPC. `services` are all services that the health service knows.
pub(crate) fn routes(app: &App, services: Vec<&'static str>) -> Router<App> {
    let mut router = Router::new();
    for name in SERVICE_NAMES {
        // Each call has the limit that its messages need, and no more.
        let calls = [
            (format!("/{name}/Work"), MAX_STREAM_MESSAGE_BYTES),
            (format!("/{name}/SubmitTasks"), MAX_BATCH_BODY_BYTES),
            (format!("/{name}/{{*call}}"), MAX_BODY_BYTES),
        ];
        for (path, max_bytes) in calls {
            let service = WorkerSchedulerServer::new(Service { app: app.clone() })
                .max_decoding_message_size(max_bytes)
                .max_encoding_message_size(MAX_SENT_MESSAGE_BYTES);
            router = router
                .route_service(&path, ServiceBuilder::new().map_request(under_own_name).service(service));
        }
    }
    health::routes(router, app, services).layer(from_fn_with_state(app.clone(), guard))
}

/// The service knows its calls by its own name only.
fn under_own_name<B>(mut request: Request<B>) -> Request<B> {
    let [own, others @ ..] = SERVICE_NAMES;
    let path = request.uri().path();
    let call = others.iter().find_map(|other| path.strip_prefix('/')?.strip_prefix(other)?.strip_prefix('/'));
    // What the table of permissions has no row for is no call either.
    if let Some(call) = call.filter(|call| !call.contains('/'))
        && let Ok(uri) = format!("/{own}/{call}").parse()
    {
        *request.uri_mut() = uri;
    }
    request
}
