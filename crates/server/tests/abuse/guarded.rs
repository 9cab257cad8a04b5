//! A server that admits holders of API keys only, and short ways to call it with a key.

use std::path::Path;
use std::sync::Arc;

use authority::command::{CreateKey, CreateKeyAnswer};
use authority::{ApiKey, Role};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use server::reapi::{Content, Instances, Results, Settings};
use server::{AuthMode, Limits, LimitsByTenant, NewKey, Options};
use tempfile::TempDir;

use crate::audit;
use crate::endpoints::{content, content_with};
use crate::store_server::{self, StoreServer};
use crate::support::{Served, Told, nodes, send};

pub(crate) struct Guarded {
    pub served: Served,
    /// The key of an admin.
    pub admin: String,
    /// With several nodes.
    _content_server: Option<StoreServer>,
    _content: TempDir,
}

impl Guarded {
    /// The first key is made while nobody is authenticated, as `lessor init` makes it while nothing is served.
    pub(crate) async fn start() -> Guarded {
        let directory = tempfile::tempdir().unwrap();
        let (content, content_server) = shared_content(directory.path()).await;
        let guarded = Guarded::of(directory, content, LimitsByTenant::default()).await;
        Guarded { _content_server: content_server, ..guarded }
    }

    /// As [`Guarded::start`], with limits of tenants.
    pub(crate) async fn start_with(blobs: blobs::Options, tenant_limits: LimitsByTenant) -> Guarded {
        let directory = tempfile::tempdir().unwrap();
        let content = content_with(directory.path(), blobs);
        Guarded::of(directory, content, tenant_limits).await
    }

    async fn of(directory: TempDir, content: Content, tenant_limits: LimitsByTenant) -> Guarded {
        audit::capture();
        let open = Options { content: Some(content), tenant_limits, ..Options::default() };
        let served = Served::start_with_options(Limits::default(), open.clone()).await;
        let admin = NewKey::generate().unwrap();
        let key = ApiKey {
            id: (*admin.id).into(),
            name: "root".into(),
            tenants: Vec::new(),
            roles: vec![Role::Admin],
            queues: Vec::new(),
            worker_prefix: None,
            expires_at: None,
            secret_hash: admin.hash,
            created_by: "test".into(),
            properties: Vec::new(),
        };
        let created =
            served.running.handle.create_key(CreateKey { key: Arc::new(key), by: None }).await.unwrap();
        assert_eq!(created, CreateKeyAnswer::Created);
        let by_anyone = served.post("/v1/keys", json!({"name": "x", "roles": ["admin"]})).await;
        assert_eq!(by_anyone.status, 403, "{by_anyone:?}");
        let served = served.restarted_with(Options { auth: AuthMode::Keys, ..open }).await;
        Guarded { served, admin: admin.text.expose().to_owned(), _content_server: None, _content: directory }
    }

    /// Stops, and starts again on the same data.
    pub(crate) async fn restarted(self) -> Guarded {
        Guarded { served: self.served.restarted().await, ..self }
    }

    /// The same with other options.
    pub(crate) async fn restarted_with(self, options: Options) -> Guarded {
        Guarded { served: self.served.restarted_with(options).await, ..self }
    }

    pub(crate) fn request(&self, key: &str, method: &str, path: &str) -> RequestBuilder {
        self.served.request(method, path).bearer_auth(key)
    }

    pub(crate) async fn get(&self, key: &str, path: &str) -> Told {
        send(self.request(key, "GET", path)).await
    }

    pub(crate) async fn post(&self, key: &str, path: &str, body: Value) -> Told {
        send(self.request(key, "POST", path).json(&body)).await
    }

    /// Creates a key: its text and its id.
    pub(crate) async fn create(&self, body: Value) -> (String, String) {
        let made = self.post(&self.admin, "/v1/keys", body).await;
        assert_eq!(made.status, 201, "{made:?}");
        (made.text("key"), made.text("keyId"))
    }

    /// A key with these roles in a tenant.
    pub(crate) async fn key(&self, name: &str, tenant: &str, roles: &[&str]) -> String {
        self.create(json!({"name": name, "tenants": [tenant], "roles": roles})).await.0
    }

    /// An empty call of gRPC, whose status is in the headers when it is refused.
    pub(crate) async fn grpc(&self, key: Option<&str>, path: &str) -> (Option<u32>, String) {
        let mut request = self.served.request("POST", path).header("content-type", "application/grpc");
        if let Some(key) = key {
            request = request.bearer_auth(key);
        }
        let response = request.send().await.unwrap();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let status = header("grpc-status").and_then(|status| status.parse().ok());
        (status, header("grpc-message").unwrap_or_default().to_owned())
    }
}

/// The content of all nodes. Several nodes have it on a content server, where an upload stays in its staging area after others
/// may see it.
async fn shared_content(directory: &Path) -> (Content, Option<StoreServer>) {
    if !nodes::are_several() {
        return (content(directory), None);
    }
    let store = blobs::Store::open(directory.join("content"), blobs::Options::default()).unwrap();
    let server = StoreServer::start(Arc::new(blobs::Local::new(store))).await;
    let client = store_server::node(&server.url, &directory.join("node"));
    let content = Content {
        blobs: client.clone(),
        action_cache: client.clone(),
        results: Results::new(client),
        settings: Settings { is_content_shared: true, ..Settings::default() },
        instances: Instances::default(),
    };
    (content, Some(server))
}
