//! A proxy between two nodes that can cut its connections, let them stand still, or hold the answers back.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    /// Connections that began before the newest cut are closed.
    cuts: usize,
    /// Nothing is passed on, and nothing is closed.
    is_still: bool,
    /// The same, of what comes back only.
    holds_answers: bool,
}

pub(crate) struct Proxy {
    pub address: String,
    state: watch::Sender<State>,
    _accepting: AbortOnDropHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(target: String) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let state = watch::Sender::new(State { cuts: 0, is_still: false, holds_answers: false });
        let states = state.subscribe();
        let accepting = tokio::spawn(async move {
            loop {
                let Ok((from, _)) = listener.accept().await else { return };
                let Ok(to) = TcpStream::connect(&target).await else { continue };
                tokio::spawn(pass_on(from, to, states.clone()));
            }
        });
        Proxy { address, state, _accepting: AbortOnDropHandle::new(accepting) }
    }

    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.cuts += 1);
    }

    pub(crate) fn hold_answers(&self, holds_answers: bool) {
        self.state.send_modify(|state| state.holds_answers = holds_answers);
    }

    pub(crate) fn stand_still(&self, is_still: bool) {
        self.state.send_modify(|state| state.is_still = is_still);
    }
}

async fn pass_on(from: TcpStream, to: TcpStream, mut states: watch::Receiver<State>) {
    let cuts = states.borrow().cuts;
    let ((from_read, from_write), (to_read, to_write)) = (from.into_split(), to.into_split());
    tokio::select! {
        () = copy(from_read, to_write, states.clone(), |state| state.is_still) => {}
        () = copy(to_read, from_write, states.clone(), |state| state.is_still || state.holds_answers) => {}
        _ = states.wait_for(|state| state.cuts > cuts) => {}
    }
}

async fn copy(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut states: watch::Receiver<State>,
    waits: impl Fn(&State) -> bool,
) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if states.wait_for(|state| !waits(state)).await.is_err() {
            return;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
