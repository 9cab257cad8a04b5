//! Another node as this node sees it: calls go out, answers and notices of change come in. The relay implements it; tests
//! implement it without a network.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use authority::{Position, Time};
use ledger::postgres::Kept;
use tokio::sync::watch;
use tokio::time::Instant;

use super::call::{Call, CallReply};
use super::configuration::Configuration;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Another node. Dropping the future of a call tells the node that nobody waits for the answer.
pub trait Peer: Send + Sync {
    /// Sends a call to the node, which must own the ledger at `epoch` or later. Waits for a connection until `give_up`, and
    /// for the answer as long as the connection lives. Times in the call count from zero: see [`Call::rebased`].
    fn call(&self, call: Call, epoch: u64, give_up: Instant) -> BoxFuture<'_, Result<CallReply, PeerError>>;

    /// The newest position that the node has called durable in an answer.
    fn durable(&self) -> Position {
        Position::ZERO
    }

    /// Passes the owner's notices on until the connection is lost. Waits for a connection first.
    fn follow(&self, notices: Notices) -> BoxFuture<'_, ()>;

    /// Tells the node who owns the ledger, over each connection anew: it may not see it in the database. Ends with the process
    /// alone.
    fn announce_owner(&self, _owner: OwnerHint) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Receives the batches of the node, which must own the ledger at `epoch` or later, until the stream ends: whether its
    /// connection was lost. Waits for a connection first, and for the node to choose this one. A node without streams feeds
    /// nobody.
    fn tail(&self, _epoch: u64, _kept: Kept) -> BoxFuture<'_, bool> {
        Box::pin(std::future::pending())
    }
}

/// Why another node gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// Nothing was sent.
    #[error("the node cannot be reached")]
    Unreachable,
    /// The call was sent; whether it was decided is unknown.
    #[error("the connection to the node was lost")]
    Lost,
    /// The node does not own the ledger, or no longer.
    #[error("the node does not own the ledger")]
    NotOwner(OwnerHint),
    /// The node cannot read the call, or this node cannot read the answer: their versions differ too much.
    #[error("the nodes do not understand each other: {0}")]
    NotUnderstood(String),
    /// The node has too many calls of this node in work.
    #[error("too many calls are on their way to the node")]
    Overloaded,
}

/// Who owns the ledger, as far as a node knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerHint {
    pub epoch: u64,
    /// The name and the address of the owner, if it is known.
    pub owner: Option<NodeAddress>,
}

/// A node and where other nodes reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    pub node: Arc<str>,
    pub address: Arc<str>,
}

/// What has changed at the owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notice {
    pub takes_work: bool,
    pub durable: Position,
    /// The owner's time.
    pub now: Time,
    /// Workers have registered or unregistered.
    pub registered: bool,
    /// The operator has given orders.
    pub ordered: bool,
    /// Keys, token keys or queues were configured.
    pub configured: bool,
    /// The number of that change at the owner, which waits until it is followed; none from an older node.
    pub change: Option<u64>,
}

/// Where notices of the owner go. Cheap to clone: clones share their content.
#[derive(Clone)]
pub struct Notices(pub(super) Arc<NoticeBoard>);

pub(super) struct NoticeBoard {
    pub takes_work: watch::Sender<bool>,
    pub durable: watch::Sender<Position>,
    pub registered: watch::Sender<()>,
    pub ordered: watch::Sender<()>,
    pub configuration: Configuration,
    pub clock: super::follower_clock::FollowerClock,
}

impl Default for Notices {
    fn default() -> Notices {
        Notices(Arc::new(NoticeBoard {
            takes_work: watch::Sender::new(true),
            durable: watch::Sender::new(Position::ZERO),
            registered: watch::Sender::new(()),
            ordered: watch::Sender::new(()),
            configuration: Configuration::default(),
            clock: super::follower_clock::FollowerClock::default(),
        }))
    }
}

impl Notices {
    /// Takes in a notice of the owner.
    pub fn post(&self, notice: Notice) {
        let board = &*self.0;
        board.clock.follow(notice.now);
        let replace = |last: &mut bool| std::mem::replace(last, notice.takes_work) != notice.takes_work;
        board.takes_work.send_if_modified(replace);
        board.durable.send_if_modified(|last| std::mem::replace(last, notice.durable) != notice.durable);
        let changes = [(notice.registered, &board.registered), (notice.ordered, &board.ordered)];
        for (_, sender) in changes.into_iter().filter(|(is_changed, _)| *is_changed) {
            sender.send_replace(());
        }
        if notice.configured {
            board.configuration.changed();
        }
    }

    /// Anything may have changed while nothing was heard of the owner.
    pub fn post_all(&self) {
        for sender in [&self.0.registered, &self.0.ordered] {
            sender.send_replace(());
        }
        self.0.configuration.changed();
    }

    /// Resolves once everything that was posted about the configuration is followed by this node.
    pub async fn followed_all(&self) {
        self.0.configuration.followed_all().await;
    }

    pub(super) fn source(&self) -> NoticeSource {
        let mut configured = self.0.configuration.changes();
        // So that the other node knows which change it begins with.
        configured.mark_changed();
        NoticeSource {
            takes_work: self.0.takes_work.subscribe(),
            durable: self.0.durable.subscribe(),
            registered: self.0.registered.subscribe(),
            ordered: self.0.ordered.subscribe(),
            configured,
        }
    }
}

/// Reads what is posted, for other nodes.
pub struct NoticeSource {
    takes_work: watch::Receiver<bool>,
    durable: watch::Receiver<Position>,
    registered: watch::Receiver<()>,
    ordered: watch::Receiver<()>,
    configured: watch::Receiver<u64>,
}

impl NoticeSource {
    /// Waits for a change, at most for `beat`, and describes it. None once nothing more is posted.
    pub async fn next(&mut self, beat: Duration) -> Option<Notice> {
        let mut notice = Notice::default();
        let changed = tokio::select! {
            changed = self.takes_work.changed() => changed,
            changed = self.registered.changed() => { notice.registered = true; changed }
            changed = self.ordered.changed() => { notice.ordered = true; changed }
            changed = self.configured.changed() => {
                notice.configured = true;
                notice.change = Some(*self.configured.borrow_and_update());
                changed
            }
            () = tokio::time::sleep(beat) => Ok(()),
        };
        changed.ok()?;
        notice.takes_work = *self.takes_work.borrow_and_update();
        notice.durable = *self.durable.borrow_and_update();
        Some(notice)
    }
}
