//! Every HTTP endpoint of the OpenAPI document, with names of things that are really there.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use server::reapi::{Content, Results, Settings};
use server::{Limits, Receiving};

use crate::support::Served;

/// Long enough for a byte to arrive on a busy machine, short enough to be outlasted.
pub(crate) const RECEIVING: Receiving = Receiving {
    max_pause: Duration::from_millis(1_000),
    max_body: Duration::from_millis(1_500),
    max_call: Duration::from_millis(2_000),
    max_stall: Duration::from_millis(1_000),
    max_health_watch: Duration::from_millis(500),
};
const MAX_HEADER_READ: Duration = Duration::from_millis(1_000);

#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub method: String,
    pub path: String,
    pub takes_body: bool,
    /// Whether it speaks the words of the callback contract.
    pub is_callback: bool,
    token: String,
}

impl Endpoint {
    /// The head of a request up to its empty line, with these further lines.
    pub(crate) fn head(&self, lines: &str) -> Vec<u8> {
        let (method, path, token) = (&self.method, &self.path, &self.token);
        format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n{lines}\r\n")
            .into_bytes()
    }

    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// A server with little patience, which also executes; its content is gone with it.
pub(crate) struct Impatient {
    served: Served,
    _content: tempfile::TempDir,
}

impl Deref for Impatient {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.served
    }
}

pub(crate) async fn impatient() -> Impatient {
    impatient_with(RECEIVING).await
}

pub(crate) async fn impatient_with(receiving: Receiving) -> Impatient {
    let limits = Limits { max_header_read: MAX_HEADER_READ, ..Limits::default() };
    let directory = tempfile::tempdir().unwrap();
    let content = Some(content(directory.path()));
    let options = server::Options { receiving, content, ..server::Options::default() };
    Impatient { served: Served::start_with_options(limits, options).await, _content: directory }
}

pub(crate) fn content(directory: &Path) -> Content {
    content_with(directory, blobs::Options::default())
}

pub(crate) fn content_with(directory: &Path, options: blobs::Options) -> Content {
    let store = blobs::Store::open(directory, options).unwrap();
    let blobs = Arc::new(blobs::Local::new(store));
    Content {
        blobs: blobs.clone(),
        action_cache: blobs.clone(),
        results: Results::new(blobs),
        settings: Settings::default(),
        instances: server::reapi::Instances::default(),
    }
}

/// The routes of the cache, which the document does not name.
pub(crate) fn cache_routes() -> Vec<Endpoint> {
    let hash = "0123456789abcdef".repeat(4);
    let paths = ["/ac", "/cas", "/some/ac", "/some/cas"].map(|place| format!("{place}/{hash}"));
    let route = |method: &str, path: &str| Endpoint {
        method: method.to_owned(),
        path: path.to_owned(),
        takes_body: method == "PUT",
        is_callback: false,
        token: String::new(),
    };
    let of_path = |path: &String| ["GET", "HEAD", "PUT"].map(|method| route(method, path));
    paths.iter().flat_map(of_path).chain([route("GET", "/status")]).collect()
}

/// All of them, about a task that is leased and pushed.
pub(crate) async fn endpoints(served: &Served) -> Vec<Endpoint> {
    let pushed = served.push("pushed").await;
    served.submit("q").await;
    let lease = served.lease("w", "q").await;
    let document: Value = serde_json::from_str(server::openapi::text()).unwrap();
    let mut endpoints = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let real = path
                .replace("{name}", "q")
                .replace("{taskId}", &pushed.task)
                .replace("{workerId}", "w")
                .replace("{keyId}", "0123456789abcdef")
                .replace("{leaseId}", lease["leaseId"].as_str().unwrap());
            assert!(!real.contains('{'), "{path} has a name that this does not know");
            endpoints.push(Endpoint {
                method: method.to_uppercase(),
                path: real,
                takes_body: !operation["requestBody"].is_null(),
                is_callback: operation["responses"]["400"].to_string().contains("CallbackProblem"),
                token: pushed.token.clone(),
            });
        }
    }
    assert!(endpoints.iter().filter(|endpoint| endpoint.takes_body).count() >= 15);
    assert_eq!(endpoints.iter().filter(|endpoint| endpoint.is_callback).count(), 3);
    endpoints
}
