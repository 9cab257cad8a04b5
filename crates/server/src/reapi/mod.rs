//! Adapter for the Remote Execution API: content store, action cache and execution. Each service has its own file or
//! folder, translates requests, and decides nothing.

mod action_cache;
mod action_cache_writer;
mod bytestream;
mod capabilities;
mod cas;
mod compression;
mod concurrency;
pub(crate) mod execution;
mod inline_outputs;
mod instance;
mod instances;
mod messages;
mod operations;
pub(crate) mod operations_page;
mod queue_defaults;
pub(crate) mod resource_name;
mod results;
mod store;
mod worker_access;

pub use action_cache_writer::ActionCacheWriter;
pub use instances::Instances;
pub use queue_defaults::queue_defaults;
pub use results::Results;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use authority::Scope;
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::post;
use blobs::{Blobs, Tenant};
use coordinator::Handle;
use tonic::server::NamedService;
use tonic::{Extensions, Request, Response, Status};
use wire::reapi::action_cache_server::ActionCacheServer;
use wire::reapi::capabilities_server::{Capabilities, CapabilitiesServer};
use wire::reapi::content_addressable_storage_server::ContentAddressableStorageServer;
use wire::reapi::execution_server::ExecutionServer;
use wire::reapi::operations_server::OperationsServer;

pub(crate) use self::execution::PinGuard;
use self::execution::{InFlightExecutions, Pins};
use crate::app::App;
use crate::edge::auth::Caller;
use crate::edge::compute::Compute;
use crate::edge::grpc_guard;
use crate::edge::limits::LimitTable;
use concurrency::ConcurrencyLimits;
use messages::bytestream::byte_stream_server::ByteStreamServer;
use messages::{GetCapabilitiesRequest, ServerCapabilities};
use store::Store;
use worker_access::WorkerAccess;

/// Most bytes of blobs in one batch call.
const MAX_BATCH_BYTES: usize = blobs::MAX_BATCH_BYTES as usize;
/// Largest message of a client: about 50,000 digests. Decoded, a message may need many times its encoded size.
const MAX_REQUEST_BYTES: usize = 4 * 1_024 * 1_024;
/// Largest batch of blobs: its content, and room for the digests of many small ones.
const MAX_BATCH_REQUEST_BYTES: usize = 2 * MAX_BATCH_BYTES;
/// Largest message that is sent: a batch or a page, with its framing.
const MAX_SENT_BYTES: usize = 4 * MAX_BATCH_BYTES;
/// The largest blob that a store accepts by default: 16 GiB.
const DEFAULT_UPLOAD_BYTES_PER_LEASE: u64 = 16 << 30;
/// The names of the services, for health checks.
pub const SERVICE_NAMES: [&str; 6] = [
    CapabilitiesServer::<Reapi>::NAME,
    ContentAddressableStorageServer::<Reapi>::NAME,
    ByteStreamServer::<Reapi>::NAME,
    ActionCacheServer::<Reapi>::NAME,
    ExecutionServer::<Reapi>::NAME,
    OperationsServer::<Reapi>::NAME,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether actions are executed, and not only cached.
    pub exec_enabled: bool,
    /// Whether clients may put results into the action cache. Whoever may, decides what others get for an action.
    pub allow_uploads: bool,
    /// Whether all nodes of a cluster have the same blobs and results, so that one of them may join the executions of another.
    pub is_content_shared: bool,
    /// How long an execution may wait while no registered worker could run it.
    pub worker_grace: Duration,
    /// Longest timeout of an action.
    pub max_action_timeout: Duration,
    /// Most bytes that a worker may upload for each lease that it holds, if it may use the content store as a worker only.
    pub max_upload_bytes_per_lease: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            exec_enabled: true,
            allow_uploads: true,
            is_content_shared: false,
            worker_grace: Duration::from_secs(60),
            max_action_timeout: Duration::from_secs(24 * 60 * 60),
            max_upload_bytes_per_lease: DEFAULT_UPLOAD_BYTES_PER_LEASE,
        }
    }
}

/// The dependencies of the service besides the coordinator.
#[derive(Clone)]
pub struct Content {
    pub blobs: Arc<dyn Blobs>,
    pub action_cache: Arc<dyn blobs::ActionCache>,
    pub results: Results,
    pub settings: Settings,
    pub instances: Instances,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The executions in flight, and what they keep in the content store.
#[derive(Clone)]
pub(crate) struct Executions {
    handle: Handle,
    blobs: Arc<dyn Blobs>,
    pub(crate) in_flight: InFlightExecutions,
    pins: Pins,
    limits: ConcurrencyLimits,
    pub(crate) worker_access: WorkerAccess,
}

impl Executions {
    pub(crate) fn new(
        handle: &Handle,
        content: &Content,
        compute: Compute,
        of_tenants: &Arc<LimitTable>,
    ) -> Executions {
        let limits = ConcurrencyLimits::new(compute);
        let pins = Pins::new(content.blobs.clone(), limits.clone());
        let in_flight = InFlightExecutions::new(
            handle.clone(),
            pins.clone(),
            content.settings.worker_grace,
            content.instances.clone(),
            content.results.clone(),
            of_tenants.clone(),
        );
        let (handle, blobs) = (handle.clone(), content.blobs.clone());
        let max_upload_bytes = content.settings.max_upload_bytes_per_lease;
        let worker_access = WorkerAccess::new(
            handle.clone(),
            blobs.clone(),
            in_flight.clone(),
            limits.clone(),
            max_upload_bytes,
        );
        Executions { handle, blobs, in_flight, pins, limits, worker_access }
    }

    /// The content as the caller may see it.
    fn store_for(&self, caller: &Caller, scope: &Scope) -> Result<Store, Status> {
        let store = self.store(scope)?;
        Ok(match caller.worker_only() {
            Some(identity) => self.worker_access.restrict(store, identity.id()),
            None => store,
        })
    }

    fn store(&self, scope: &Scope) -> Result<Store, Status> {
        let (tenant, limits) = (tenant(scope)?, self.limits.clone());
        Ok(Store { blobs: self.blobs.clone(), tenant, limits })
    }
}

#[derive(Clone)]
pub struct Reapi {
    app: App,
    content: Content,
    executions: Executions,
}

impl Reapi {
    fn store(&self, scope: &Scope) -> Result<Store, Status> {
        self.executions.store(scope)
    }

    /// The content as the caller of a request may see it.
    fn store_for(&self, extensions: &Extensions, scope: &Scope) -> Result<Store, Status> {
        self.executions.store_for(&Caller::of(extensions), scope)
    }
}

fn tenant(scope: &Scope) -> Result<Tenant, Status> {
    Tenant::new(&scope.tenant).map_err(|fault| Status::invalid_argument(fault.to_string()))
}

#[tonic::async_trait]
impl Capabilities for Reapi {
    async fn get_capabilities(
        &self,
        request: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<ServerCapabilities>, Status> {
        capabilities::get(self, &request).map(Response::new)
    }
}

/// The routes of all services, with the guard of all gRPC calls.
pub(crate) fn routes(app: &App, content: &Content, executions: &Executions) -> Router<App> {
    let reapi = Reapi { app: app.clone(), content: content.clone(), executions: executions.clone() };
    let (in_flight, worker_access) = (executions.in_flight.clone(), executions.worker_access.clone());
    tokio::spawn(async move { worker_access.find_unclaimed().await });
    tokio::spawn(async move {
        if let Err(why) = in_flight.load_all().await {
            tracing::warn!(why = why.message(), "what was on its way before is found when it is asked for");
        }
    });
    let mut router = Router::new();
    macro_rules! served {
        ($server:ident, $calls:literal, $max_bytes:expr) => {
            let service = $server::new(reapi.clone())
                .max_decoding_message_size($max_bytes)
                .max_encoding_message_size(MAX_SENT_BYTES);
            router = router.route_service(&format!("/{}/{}", $server::<Reapi>::NAME, $calls), service);
        };
    }
    served!(CapabilitiesServer, "{*call}", MAX_REQUEST_BYTES);
    served!(ContentAddressableStorageServer, "BatchUpdateBlobs", MAX_BATCH_REQUEST_BYTES);
    served!(ContentAddressableStorageServer, "{*call}", MAX_REQUEST_BYTES);
    served!(ByteStreamServer, "{*call}", MAX_REQUEST_BYTES);
    served!(ActionCacheServer, "{*call}", MAX_REQUEST_BYTES);
    served!(ExecutionServer, "{*call}", MAX_REQUEST_BYTES);
    served!(OperationsServer, "{*call}", MAX_REQUEST_BYTES);
    let read = move |request: axum::extract::Request| bytestream::answer::serve(reapi.clone(), request);
    router
        .route(bytestream::answer::PATH, post(read))
        .layer(from_fn_with_state(app.clone(), grpc_guard::guard))
}
