//! The way from one node of a process to another one, which a test can cut.

use coordinator::{BoxFuture, Call, CallReply, Inbound, Notices, Peer, PeerError};
use ledger::postgres::{Fed, Feed, Kept};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// The node that cannot reach any other one. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct CutOff(watch::Sender<Option<String>>);

impl CutOff {
    pub(crate) fn set(&self, node: Option<&str>) {
        self.0.send_replace(node.map(str::to_owned));
    }

    /// Whether this node hears others.
    pub(crate) fn hearing(&self, node: &str) -> impl Fn(&str) -> bool + Send + 'static {
        let (cut_off, node) = (self.0.subscribe(), node.to_owned());
        move |other| cut_off.borrow().as_ref().is_none_or(|cut| *cut != node && cut != other)
    }
}

/// Calls another node of the same process.
pub(crate) struct Direct {
    nodes: [String; 2],
    other: Option<(Inbound, Feed)>,
    cut_off: watch::Receiver<Option<String>>,
}

impl Direct {
    pub(crate) fn new(node: &str, to: &str, other: Option<(Inbound, Feed)>, cut_off: &CutOff) -> Direct {
        Direct { nodes: [node.to_owned(), to.to_owned()], other, cut_off: cut_off.0.subscribe() }
    }

    /// Resolves when the way is open, or when it is cut.
    async fn until(&self, is_open: bool) {
        let is_cut = |cut_off: &Option<String>| cut_off.as_ref().is_some_and(|cut| self.nodes.contains(cut));
        let _ = self.cut_off.clone().wait_for(|cut_off| is_cut(cut_off) != is_open).await;
    }

    async fn receive(&self, (inbound, feed): &(Inbound, Feed), epoch: u64, kept: &Kept) {
        let Some(after) = kept.end() else { return };
        let mut subscription = feed.subscribe(&self.nodes[0], epoch, after).await;
        let receipts = subscription.receipts();
        while let Some(fed) = subscription.next().await {
            match fed {
                Fed::Batch(before, row) => {
                    if !kept.receive(subscription.epoch(), before, row) {
                        return;
                    }
                    receipts.received(kept.end().unwrap().next);
                }
                Fed::Durable(next) => {
                    let Some(now) = inbound.now_if_owner() else { continue };
                    kept.durable(subscription.epoch(), next, now);
                }
            }
        }
    }
}

impl Peer for Direct {
    fn call(&self, call: Call, epoch: u64, give_up: Instant) -> BoxFuture<'_, Result<CallReply, PeerError>> {
        Box::pin(async move {
            let (inbound, _) = self.other.as_ref().ok_or(PeerError::Unreachable)?;
            timeout_at(give_up, self.until(true)).await.map_err(|_| PeerError::Unreachable)?;
            tokio::select! {
                answer = inbound.call(call, epoch) => answer.map_err(PeerError::NotOwner),
                () = self.until(false) => Err(PeerError::Lost),
            }
        })
    }

    fn follow(&self, _notices: Notices) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    fn tail(&self, epoch: u64, kept: Kept) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let Some(other) = &self.other else { return true };
            self.until(true).await;
            tokio::select! {
                () = self.receive(other, epoch, &kept) => kept.end().is_none(),
                () = self.until(false) => true,
            }
        })
    }
}
