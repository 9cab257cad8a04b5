//! The standard health service, and reflection in both of its versions.

use axum::Router;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::server::Builder;
use wire::grpc::{FILE_DESCRIPTOR_SET, SERVICE_NAMES};

use super::MAX_QUESTION_BYTES;
use crate::app::App;
use crate::reapi;

/// Adds both services to the routes.
pub fn routes(router: Router<App>, app: &App) -> Router<App> {
    let health =
        HealthServer::new(Serving { app: app.clone() }).max_decoding_message_size(MAX_QUESTION_BYTES);
    let router = router.route_service("/grpc.health.v1.Health/{*call}", health);
    let described = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    match (described().build_v1(), described().build_v1alpha()) {
        (Ok(v1), Ok(v1alpha)) => router
            .route_service(
                "/grpc.reflection.v1.ServerReflection/{*call}",
                v1.max_decoding_message_size(MAX_QUESTION_BYTES),
            )
            .route_service(
                "/grpc.reflection.v1alpha.ServerReflection/{*call}",
                v1alpha.max_decoding_message_size(MAX_QUESTION_BYTES),
            ),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(%error, "the services cannot be described, so reflection is off");
            router
        }
    }
}

/// Answers from what is known here, without a place in the coordinator's queue, so that it never waits.
struct Serving {
    app: App,
}

impl Serving {
    /// How a service does; none when there is no such service.
    fn status(&self, service: &str) -> Option<ServingStatus> {
        let executes = self.app.content().is_some() && reapi::SERVICE_NAMES.contains(&service);
        let known = service.is_empty() || SERVICE_NAMES.contains(&service) || executes;
        let serving = !self.app.is_draining() && self.app.handle().is_serving();
        known.then_some(if serving { ServingStatus::Serving } else { ServingStatus::NotServing })
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for Serving {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let status = self.status(&request.get_ref().service);
        status.map(|status| Response::new(answer(status))).ok_or_else(|| Status::not_found("no such service"))
    }

    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    /// Tells the status now, and again when the server is about to stop.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let place = self.app.grpc().stream()?;
        let status = self.status(&request.get_ref().service);
        let (sender, receiver) = mpsc::channel(2);
        let app = self.app.clone();
        tokio::spawn(async move {
            let _place = place;
            let _ = sender.send(Ok(answer(status.unwrap_or(ServingStatus::ServiceUnknown)))).await;
            tokio::select! {
                () = app.draining() => {}
                () = sender.closed() => return,
            }
            if status == Some(ServingStatus::Serving) {
                let _ = sender.send(Ok(answer(ServingStatus::NotServing))).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
