//! Tests that a cluster keeps every contract: three nodes on one PostgreSQL with a content server, and each request of the
//! suite to any of the nodes.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, Uri, header};
use conformance::{Contract, Options};
use futures_util::future::join_all;
use tokio::net::TcpListener;
use tokio::task::block_in_place;

use crate::support::cluster::{Cluster, content_server, storage};
use crate::support::worker::Worker;
use crate::{all_passed, conforming, outcomes_of};

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_keep_every_contract_with_each_request_sent_to_any_of_them() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let callback_url = format!("http://{}", listener.local_addr().unwrap());
    let (content, cluster) = block_in_place(|| {
        let content = content_server();
        let tables = format!(
            "[push]\nallow_private_targets = true\ncallback_url = {callback_url:?}\n\
             [execution.scheduler]\nheartbeat_timeout_seconds = 5\n{}",
            storage(&content)
        );
        let cluster = Cluster::start_with(&["a", "b", "c"], &tables);
        (content, cluster)
    });
    let _worker = Worker::start(&cluster.nodes[0].1);
    let urls: Vec<String> = cluster.nodes.iter().map(|(_, server)| server.url()).collect();
    balance(listener, urls.clone());
    let runs = Contract::ALL.map(|contract| {
        // Executions have the default workspace to themselves: the contract grpc leases from their queue too.
        let workspace = if contract == Contract::Reapi { "default" } else { contract.name() };
        let workspace = workspace.to_owned();
        let options = Options { urls: urls.clone(), workspace, ..Options::new("") };
        async move { (contract, outcomes_of(options, contract, &[]).await) }
    });
    for (contract, mut outcomes) in join_all(runs).await {
        assert_eq!(conforming::numbers(&outcomes), conforming::covered(contract));
        outcomes.retain(|outcome| !outcome.check.numbers.contains(&RESUMED_UPLOADS));
        all_passed(&outcomes);
    }
    drop(content);
}

/// An upload that was cut off goes on at the node that has its beginning, and the next request may reach another one.
const RESUMED_UPLOADS: &str = "R24";

/// Forwards callbacks as a load balancer does: each request goes to the next node.
fn balance(listener: TcpListener, urls: Vec<String>) {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let nodes = Arc::new(Mutex::new(urls.into_iter().cycle()));
    let forward = async move |State(http): State<reqwest::Client>,
                              method: Method,
                              uri: Uri,
                              mut headers: HeaderMap,
                              body: Bytes| {
        let node = nodes.lock().unwrap().next().unwrap();
        headers.remove(header::HOST);
        let request = http.request(method, format!("{node}{uri}")).headers(headers).body(body);
        let answer = request.send().await.unwrap();
        let mut response = Response::new(Body::empty());
        *response.status_mut() = answer.status();
        *response.headers_mut() = answer.headers().clone();
        *response.body_mut() = Body::from(answer.bytes().await.unwrap());
        response
    };
    let router = Router::new().fallback(forward).with_state(http);
    tokio::spawn(async move { axum::serve(listener, router).await });
}
