//! A content server for the nodes of a test.

// Each test binary has its own copy of this module and uses a part of it.
#![allow(dead_code)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use blobs::Local;
use credentials::Connector;
use reapi_client::ContentServer;
use server::reapi::{Content, Results, Settings};
use server::{App, Limits};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A server of a store, as `lessor serve` without executions is.
pub(crate) struct StoreServer {
    pub url: String,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl StoreServer {
    pub(crate) async fn start(store: Arc<Local>) -> StoreServer {
        let storage = ledger::memory::MemoryStorage::default().open();
        let start = || coordinator::start(storage, coordinator::Options::default());
        let running = tokio::task::spawn_blocking(start).await.unwrap().unwrap();
        let content = Content {
            blobs: store.clone(),
            action_cache: store.clone(),
            results: Results::new(store),
            settings: Settings { exec_enabled: false, ..Settings::default() },
            instances: server::reapi::Instances::default(),
        };
        let options = server::Options { content: Some(content), ..server::Options::default() };
        let app = App::with_options(running.handle.clone(), [8; 32], options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn(async move {
            let stopped = async {
                let _ = stopped.await;
            };
            server::serve_with(listener, app, Limits::default(), stopped).await;
            running.stop().await.unwrap();
        });
        StoreServer { url, stop, serving }
    }

    /// Stops, and gives the store back.
    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        self.serving.await.unwrap();
    }
}

/// The store of a node in a directory of its own.
pub(crate) fn node(url: &str, directory: &Path) -> Arc<ContentServer> {
    let local = Local::new(blobs::Store::open(directory, blobs::Options::default()).unwrap());
    let patience = Duration::from_secs(1);
    Arc::new(ContentServer::with_patience(url, Connector::default(), Arc::new(local), patience).unwrap())
}
