//! Lets a test's server be a node that does not own the ledger: with `LESSOR_TEST_NODE=edge` in the environment every suite
//! runs through the relay, over TLS on the loopback.

use std::future::Future;
use std::sync::Arc;

use coordinator::{Handle, NodeAddress, Router, RouterOptions, Running};
use relay::{ClusterTls, RemotePeer};
use tokio::net::TcpListener;

const KEY: &[u8] = b"the key of a cluster, which has 32 bytes at least";

tokio::task_local! {
    static THROUGH_AN_EDGE: ();
}

/// Runs a test with servers that do not own their ledgers.
pub(crate) async fn through_an_edge(test: impl Future<Output = ()>) {
    THROUGH_AN_EDGE.scope((), test).await;
}

/// Whether the servers of this test do not own their ledgers.
pub(crate) fn is_edge() -> bool {
    let is_asked_for = std::env::var("LESSOR_TEST_NODE").is_ok_and(|node| node == "edge");
    is_asked_for || THROUGH_AN_EDGE.try_with(|()| ()).is_ok()
}

/// The handle for a server: that of the coordinator, or that of another node.
pub(crate) async fn handle(running: &Running) -> Handle {
    if is_edge() { forwarded(running).await } else { running.handle.clone() }
}

/// The handle of a node that forwards to the coordinator. Its connections last as long as the test's runtime.
async fn forwarded(running: &Running) -> Handle {
    let tls = ClusterTls::from_cluster_key(KEY).unwrap();
    let (owner, _) = Router::new(RouterOptions::default());
    owner.own(running.report.epoch, &running.handle);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serving = relay::serve(listener, tls.clone(), "owner", owner.inbound(), std::future::pending());
    tokio::spawn(async move {
        serving.await;
        drop(owner);
    });
    let (edge, handle) = Router::new(RouterOptions::default());
    let peer = Arc::new(RemotePeer::connect(address.clone(), "edge", tls));
    peer.connected().await;
    edge.forward(running.report.epoch, NodeAddress { node: "owner".into(), address: address.into() }, peer);
    // Without its router the handle would say that the coordinator has stopped.
    tokio::spawn(async move {
        std::future::pending::<()>().await;
        drop(edge);
    });
    handle
}
