//! A peer that sends what it likes, byte by byte if it likes, and hears what comes back.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::Served;

/// Far longer than any bound of the server in these tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two bytes of a slow peer.
const TICK: Duration = Duration::from_millis(50);

pub(crate) struct Peer(TcpStream);

impl Peer {
    pub(crate) async fn connect(served: &Served) -> Peer {
        Peer(TcpStream::connect(served.address).await.unwrap())
    }

    /// Sends it all. A server that has closed already is no error here.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = timeout(PATIENCE, self.0.write_all(bytes)).await.expect("it took no more");
    }

    /// Says that nothing more will come.
    pub(crate) async fn half_close(&mut self) {
        let _ = self.0.shutdown().await;
    }

    /// Sends byte after byte until the server says something or closes, and hears it to the end.
    pub(crate) async fn trickle(&mut self, bytes: &[u8]) -> String {
        let mut answer = vec![0; 1];
        for byte in bytes {
            match timeout(TICK, self.0.read_exact(&mut answer)).await {
                Ok(Ok(_)) => return self.hear_after(answer).await,
                Ok(Err(_)) => return String::new(),
                Err(_) if self.0.write_all(&[*byte]).await.is_err() => return String::new(),
                Err(_) => {}
            }
        }
        panic!("the server took {} slow bytes and waits for more", bytes.len());
    }

    /// One head of an answer.
    pub(crate) async fn hear_head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(timeout(PATIENCE, self.0.read_u8()).await.expect("it says nothing").unwrap());
        }
        String::from_utf8_lossy(&head).into_owned()
    }

    /// What the server says until it closes.
    pub(crate) async fn hear(&mut self) -> String {
        self.hear_after(Vec::new()).await
    }

    async fn hear_after(&mut self, mut answer: Vec<u8>) -> String {
        // A reset is a close as well.
        let _ = timeout(PATIENCE, self.0.read_to_end(&mut answer)).await.expect("the connection stays open");
        String::from_utf8_lossy(&answer).into_owned()
    }
}
