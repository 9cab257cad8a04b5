//! The Remote Execution API: a content store, an action cache, and executions that are tasks like all others. One service
//! to a folder or file; each translates and decides nothing.

mod action_cache;
mod bytestream;
mod capabilities;
mod cas;
mod compression;
mod digest;
mod execution;
mod inlined;
mod instance;
mod keeper;
mod messages;
mod metadata;
mod operations;
mod resource_name;
mod results;
mod store;

pub use keeper::Keeper;
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
use tonic::{Request, Response, Status};

use crate::app::App;
use crate::grpc;
use execution::Running;
use messages::action_cache_server::ActionCacheServer;
use messages::bytestream::byte_stream_server::ByteStreamServer;
use messages::capabilities_server::{Capabilities, CapabilitiesServer};
use messages::content_addressable_storage_server::ContentAddressableStorageServer;
use messages::execution_server::ExecutionServer;
use messages::longrunning::operations_server::OperationsServer;
use messages::{GetCapabilitiesRequest, ServerCapabilities};
use store::Store;

/// Most bytes of blobs in one batch call.
const MAX_BATCH_BYTES: usize = blobs::MAX_BATCH_BYTES as usize;
/// Largest message of a client: a batch, and room for the digests of many small blobs.
const MAX_MESSAGE_BYTES: usize = 4 * MAX_BATCH_BYTES;

/// What an operator may want to be otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether actions are executed, and not only cached.
    pub exec_enabled: bool,
    /// Whether clients may put results into the action cache.
    pub allow_uploads: bool,
    /// How long an execution may wait while no registered worker could run it.
    pub worker_grace: Duration,
    /// Longest time that an action may ask for.
    pub max_action_timeout: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            exec_enabled: true,
            allow_uploads: true,
            worker_grace: Duration::from_secs(60),
            max_action_timeout: Duration::from_secs(24 * 60 * 60),
        }
    }
}

/// What the service needs beside the coordinator.
#[derive(Clone)]
pub struct Content {
    pub blobs: Arc<dyn Blobs>,
    pub action_cache: Arc<dyn blobs::ActionCache>,
    pub results: Results,
    pub settings: Settings,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Content").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct Reapi {
    app: App,
    content: Content,
    running: Running,
}

impl Reapi {
    pub fn new(app: App, content: Content) -> Reapi {
        let running = Running::new(app.handle().clone(), content.settings.worker_grace);
        Reapi { app, content, running }
    }

    fn app(&self) -> &App {
        &self.app
    }

    fn handle(&self) -> &Handle {
        self.app.handle()
    }

    fn settings(&self) -> &Settings {
        &self.content.settings
    }

    fn results(&self) -> &Results {
        &self.content.results
    }

    fn running(&self) -> &Running {
        &self.running
    }

    /// The content that belongs to the tenant of a call.
    fn store(&self, scope: &Scope) -> Result<Store, Status> {
        Ok(Store { blobs: self.content.blobs.clone(), tenant: tenant(scope)? })
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

/// Every service of the protocol, held to what all gRPC calls are held to.
pub fn routes(app: &App, content: &Content) -> Router<App> {
    let reapi = Reapi::new(app.clone(), content.clone());
    macro_rules! served {
        ($router:expr, $($server:ident),*) => {{
            let mut router = $router;
            $(
                let service = $server::new(reapi.clone())
                    .max_decoding_message_size(MAX_MESSAGE_BYTES)
                    .max_encoding_message_size(MAX_MESSAGE_BYTES);
                router = router.route_service(&format!("/{}/{{*call}}", $server::<Reapi>::NAME), service);
            )*
            router
        }};
    }
    let router = served!(
        Router::new(),
        CapabilitiesServer,
        ContentAddressableStorageServer,
        ByteStreamServer,
        ActionCacheServer,
        ExecutionServer,
        OperationsServer
    );
    let read = move |request: axum::extract::Request| bytestream::answer::serve(reapi.clone(), request);
    router.route(bytestream::answer::PATH, post(read)).layer(from_fn_with_state(app.clone(), grpc::guard))
}
