//! Connections of a client to the server of its own process, without a socket and without TLS.

use std::io;

use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;

/// How much each side may send ahead.
const BUFFER_BYTES: usize = 64 * 1_024;
/// Connections that may wait to be accepted.
const BACKLOG: usize = 64;

/// Connects to the server that has the receiver. A clone connects to the same server.
#[derive(Clone, Debug)]
pub struct Dialer(mpsc::Sender<DuplexStream>);

pub fn channel() -> (Dialer, mpsc::Receiver<DuplexStream>) {
    let (sender, receiver) = mpsc::channel(BACKLOG);
    (Dialer(sender), receiver)
}

impl Dialer {
    pub async fn dial(self) -> io::Result<DuplexStream> {
        let (ours, theirs) = duplex(BUFFER_BYTES);
        let refused = |_| io::Error::new(io::ErrorKind::ConnectionRefused, "the server has stopped");
        self.0.send(theirs).await.map_err(refused)?;
        Ok(ours)
    }
}
