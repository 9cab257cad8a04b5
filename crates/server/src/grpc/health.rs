//! The standard health service, and reflection in both of its versions.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::middleware::map_response;
use coordinator::engine::DiskSpace;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::server::Builder;
use wire::grpc::FILE_DESCRIPTOR_SET;

use super::MAX_QUESTION_BYTES;
use super::sender_faults::blame_sender;
use crate::app::App;

/// Adds both services to the routes.
pub(super) fn routes(router: Router<App>, app: &App, services: Vec<&'static str>) -> Router<App> {
    let health = HealthServer::new(Serving { app: app.clone(), services: services.into() })
        .max_decoding_message_size(MAX_QUESTION_BYTES);
    let health = Router::new().route_service("/grpc.health.v1.Health/{*call}", health);
    let router = router.merge(health.layer(map_response(blame_sender)));
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

/// Whether new work is accepted: the coordinator answers, and the disk has space (S3-60).
const SCHEDULER: &str = "lessor.Scheduler";
/// Whether a worker is registered (S3-60).
const WORKERS: &str = "lessor.Workers";
/// How long the coordinator may take to say where it is.
const MAX_WAIT: Duration = Duration::from_secs(2);

#[derive(Clone)]
struct Serving {
    app: App,
    services: Arc<[&'static str]>,
}

impl Serving {
    /// How a service does, as far as is known here; none when there is no such service.
    async fn status(&self, service: &str) -> Option<ServingStatus> {
        let handle = &self.app.handle;
        let is_up = !self.app.is_leaving() && handle.is_serving();
        let serves = match service {
            SCHEDULER => is_up && *handle.takes_work().borrow(),
            WORKERS => is_up && handle.registered_count().await.is_ok_and(|count| count > 0),
            "" => is_up,
            name if self.services.contains(&name) => is_up,
            _ => return None,
        };
        Some(if serves { ServingStatus::Serving } else { ServingStatus::NotServing })
    }

    /// Whether the coordinator answers, and says that it takes work.
    async fn answers(&self) -> bool {
        let status = timeout(MAX_WAIT, self.app.handle.status()).await;
        matches!(status, Ok(Ok(status)) if status.disk_space == DiskSpace::Plenty)
    }

    /// Waits until the registered workers have been silent for too long, should they say nothing more.
    async fn all_silent(&self) {
        let handle = &self.app.handle;
        match handle.registered_for_ms().await {
            // They are forgotten the moment after.
            Ok(Some(ms)) => sleep(Duration::from_millis(ms + 1)).await,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}

#[tonic::async_trait]
impl Health for Serving {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = request.get_ref().service.as_str();
        let status = self.status(service).await.ok_or_else(|| Status::not_found("no such service"))?;
        let is_up = status == ServingStatus::Serving && (service != SCHEDULER || self.answers().await);
        let status = if is_up { status } else { ServingStatus::NotServing };
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    type WatchStream = ReceiverStream<Result<HealthCheckResponse, Status>>;

    /// Sends the status now and after each change, until the server is about to stop or the watch is as old as it may be.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let permit = self.app.grpc.health_watch()?;
        let max_age = self.app.bodies.receiving.max_health_watch;
        let (sender, receiver) = mpsc::channel(2);
        let serving = self.clone();
        tokio::spawn(async move {
            let _permit = permit;
            let service = request.into_inner().service;
            let mut sent = None;
            let mut too_old = pin!(sleep(max_age));
            // From before the first look, so that no change falls in between.
            let mut takes_work = serving.app.handle.takes_work();
            let mut workers = serving.app.handle.watch_workers();
            loop {
                let is_last = serving.app.is_leaving() || takes_work.has_changed().is_err();
                let status = serving.status(&service).await.unwrap_or(ServingStatus::ServiceUnknown);
                let answer = HealthCheckResponse { status: status.into() };
                let is_gone = sent.replace(status) != Some(status) && sender.send(Ok(answer)).await.is_err();
                if is_last || is_gone {
                    return;
                }
                tokio::select! {
                    () = serving.app.leaving() => {}
                    () = sender.closed() => return,
                    () = &mut too_old => {
                        let _ = sender.send(Err(Status::unavailable("the watch is over: begin another one"))).await;
                        return;
                    }
                    _ = takes_work.changed() => {}
                    _ = workers.changed(), if service == WORKERS => {}
                    () = serving.all_silent(), if service == WORKERS => {}
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}
