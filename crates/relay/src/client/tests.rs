//! Answers in an order that no owner of ours sends: late, twice, and after their callers have left.

use std::sync::Arc;
use std::time::Duration;

use coordinator::{Call, CallReply, Peer, PeerError, RegistryCall, RegistryReply};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::RemotePeer;
use crate::connection::{Incoming, Outgoing, framed, next_frame, send_now};
use crate::frame::{Downward, Upward, VERSION};
use crate::tls::ClusterTls;
use authority::Position;

/// Another node, as far as the test plays it.
struct Played {
    incoming: Incoming<TlsStream<TcpStream>>,
    outgoing: Outgoing<TlsStream<TcpStream>>,
}

impl Played {
    /// Takes the connection of a node.
    async fn accept(listener: &TcpListener, tls: &ClusterTls) -> Played {
        let (tcp, _) = listener.accept().await.unwrap();
        let stream = TlsAcceptor::from(tls.server.clone()).accept(tcp).await.unwrap();
        let (mut incoming, mut outgoing, _) = framed(stream);
        next_frame(&mut incoming).await.unwrap().expect("it greets");
        let welcome = Downward::Welcome { version: VERSION, node: "played".to_owned() };
        send_now(&mut outgoing, welcome.encode()).await.unwrap();
        Played { incoming, outgoing }
    }

    /// The next call, by its number on the connection.
    async fn asked(&mut self) -> u64 {
        loop {
            let frame = next_frame(&mut self.incoming).await.unwrap().expect("it is connected");
            match Upward::decode(&frame) {
                Ok(Upward::Ask { id, .. }) => return id,
                Ok(Upward::Ping {}) => {
                    send_now(&mut self.outgoing, Downward::Pong {}.encode()).await.unwrap()
                }
                _ => {}
            }
        }
    }

    async fn answers(&mut self, id: u64, count: u64) {
        let reply = CallReply::Registry(RegistryReply::Count(count));
        let answer = Downward::Answer { id, reply, durable: Position::ZERO };
        send_now(&mut self.outgoing, answer.encode()).await.unwrap();
    }
}

type Answer = Result<CallReply, PeerError>;

fn call(peer: &Arc<RemotePeer>) -> JoinHandle<Answer> {
    let peer = peer.clone();
    tokio::spawn(async move {
        let call = Call::Registry(RegistryCall::Count { tenant: None });
        peer.call(call, 1, Instant::now() + Duration::from_secs(60)).await
    })
}

async fn count(call: JoinHandle<Answer>) -> u64 {
    match call.await.unwrap() {
        Ok(CallReply::Registry(RegistryReply::Count(count))) => count,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn c17_an_answer_that_comes_twice_or_late_is_never_taken_for_another_one() {
    let tls = ClusterTls::from_cluster_key(b"the key of a cluster, which has 32 bytes at least").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let peer = Arc::new(RemotePeer::connect(address, "node", tls.clone()));
    let mut played = Played::accept(&listener, &tls).await;

    let first = call(&peer);
    let first_id = played.asked().await;
    played.answers(first_id, 1).await;
    played.answers(first_id, 2).await;
    assert_eq!(count(first).await, 1);

    let second = call(&peer);
    let second_id = played.asked().await;
    played.answers(first_id, 3).await;
    played.answers(second_id, 4).await;
    assert_eq!(count(second).await, 4);

    // Nobody waits for this one any more when it is answered.
    let left = call(&peer);
    let left_id = played.asked().await;
    left.abort();
    assert!(left.await.unwrap_err().is_cancelled());
    let (third, fourth) = (call(&peer), call(&peer));
    let ids = [played.asked().await, played.asked().await];
    played.answers(left_id, 5).await;
    played.answers(ids[1], 7).await;
    played.answers(ids[0], 6).await;
    let mut counts = [count(third).await, count(fourth).await];
    counts.sort_unstable();
    assert_eq!(counts, [6, 7], "each has its own, whichever was sent first");
}
