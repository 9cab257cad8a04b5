//! The standard health service, and reflection in both of its versions.

use std::time::Duration;

use axum::Router;
use coordinator::engine::Room;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
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

/// Whether new work is taken: the coordinator answers, and the disk has room (S3-60).
const SCHEDULER: &str = "lessor.Scheduler";
/// Whether anybody is there to do work: some worker is registered (S3-60).
const WORKERS: &str = "lessor.Workers";
/// How long the coordinator may take to say where it is.
const MAX_WAIT: Duration = Duration::from_secs(2);
/// How often somebody who watches is looked after.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Only the scheduler's own state is asked of the coordinator; all else is known here, and never waits.
#[derive(Clone)]
struct Serving {
    app: App,
}

impl Serving {
    /// How a service does; none when there is no such service.
    async fn status(&self, service: &str) -> Option<ServingStatus> {
        let handle = self.app.handle();
        let is_up = !self.app.is_draining() && handle.is_serving();
        let serves = match service {
            SCHEDULER => is_up && self.takes_work().await,
            WORKERS => is_up && handle.registry().registered_count(handle.now()) > 0,
            "" => is_up,
            name if SERVICE_NAMES.contains(&name) => is_up,
            name if self.app.content().is_some() && reapi::SERVICE_NAMES.contains(&name) => is_up,
            _ => return None,
        };
        Some(if serves { ServingStatus::Serving } else { ServingStatus::NotServing })
    }

    async fn takes_work(&self) -> bool {
        let status = timeout(MAX_WAIT, self.app.handle().status()).await;
        matches!(status, Ok(Ok(status)) if status.room == Room::Plenty)
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
        let status = self.status(&request.get_ref().service).await;
        status.map(|status| Response::new(answer(status))).ok_or_else(|| Status::not_found("no such service"))
    }

    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    /// Tells the status now, and again whenever it has changed, until the server is about to stop.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let place = self.app.grpc().stream()?;
        let (sender, receiver) = mpsc::channel(2);
        let serving = self.clone();
        tokio::spawn(async move {
            let _place = place;
            let service = request.into_inner().service;
            let mut told = None;
            loop {
                let is_last = serving.app.is_draining();
                let status = serving.status(&service).await.unwrap_or(ServingStatus::ServiceUnknown);
                if told.replace(status) != Some(status) && sender.send(Ok(answer(status))).await.is_err() {
                    return;
                }
                if is_last {
                    return;
                }
                tokio::select! {
                    () = serving.app.draining() => {}
                    () = sender.closed() => return,
                    () = sleep(LOOK_INTERVAL) => {}
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
