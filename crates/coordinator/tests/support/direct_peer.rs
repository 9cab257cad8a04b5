//! Another node without a network: its calls run in this process, and their answers can be lost or withheld.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use coordinator::{
    BoxFuture, Call, CallReply, Handle, Inbound, NodeAddress, Notices, Peer, PeerError, Router,
    RouterOptions, Running,
};
use tokio::sync::watch;
use tokio::time::Instant;

/// What happens to the answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Answers {
    #[default]
    Arrive,
    /// The first answer to each call is lost with the connection.
    LostOnce,
    /// The calls do not arrive, and no connection ends.
    Never,
    /// The calls are decided, but no answer arrives, and no connection ends.
    Withheld,
}

pub(crate) struct DirectPeer {
    inbound: Inbound,
    answers: Answers,
    is_lost_next: AtomicUsize,
    /// How many calls came.
    pub calls: watch::Sender<usize>,
    /// How many answers were withheld.
    pub decided: watch::Sender<usize>,
}

impl DirectPeer {
    pub(crate) fn new(inbound: Inbound, answers: Answers) -> Arc<DirectPeer> {
        Arc::new(DirectPeer {
            inbound,
            answers,
            is_lost_next: AtomicUsize::new(0),
            calls: watch::Sender::new(0),
            decided: watch::Sender::new(0),
        })
    }

    /// Waits until so many calls have come.
    pub(crate) async fn called(&self, calls: usize) {
        self.calls.subscribe().wait_for(|seen| *seen >= calls).await.unwrap();
    }
}

impl Peer for DirectPeer {
    fn call(&self, call: Call, epoch: u64, _: Instant) -> BoxFuture<'_, Result<CallReply, PeerError>> {
        Box::pin(async move {
            self.calls.send_modify(|calls| *calls += 1);
            if self.answers == Answers::Never {
                return std::future::pending().await;
            }
            let reply = self.inbound.call(call, epoch).await.map_err(PeerError::NotOwner)?;
            if self.answers == Answers::Withheld {
                self.decided.send_modify(|decided| *decided += 1);
                return std::future::pending().await;
            }
            let is_first = self.is_lost_next.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
            match self.answers {
                Answers::LostOnce if is_first => Err(PeerError::Lost),
                _ => Ok(reply),
            }
        })
    }

    fn follow(&self, notices: Notices) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let mut source = self.inbound.notices();
            notices.post_all();
            while let Some(mut notice) = source.next(Duration::from_secs(1)).await {
                let Some(now) = self.inbound.now_if_owner() else { return };
                notice.now = now;
                notices.post(notice);
            }
        })
    }
}

/// A node that owns the ledger.
pub(crate) struct Owner {
    pub running: Running,
    pub router: Router,
    /// The node's own handle.
    pub handle: Handle,
}

impl Owner {
    pub(crate) fn start(storage: &ledger::memory::MemoryStorage) -> Owner {
        let running = super::start_on(storage.open());
        let (router, handle) = Router::new(RouterOptions::default());
        router.own(running.report.epoch, &running.handle);
        Owner { running, router, handle }
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.running.report.epoch
    }
}

pub(crate) fn address(node: &str) -> NodeAddress {
    NodeAddress { node: node.into(), address: "".into() }
}
