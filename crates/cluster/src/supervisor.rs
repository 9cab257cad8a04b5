//! The roles of a node, one after the other: a standby that follows, an owner that leads, an edge that forwards until it
//! ends.

mod cut_off;
mod follow;
mod preparation;
mod replaced;
mod take_over;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use authority::{Position, Time};
use coordinator::{Clock, Failure, Handle, NodeAddress, Options, Peer, Router, Running};
use ledger::postgres::{Database, Feed, FeedOptions, Holding, Kept, Membership, OwnerRow};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout};

use self::preparation::Preparation;
use self::replaced::next_claim;
use crate::failure_detector::FailureDetector;
use crate::fork::Fork;
use crate::own_row::{Failed, OwnRow, Standing};
use crate::reachability::Reachability;
use crate::tail::Tail;

/// How often an owner says that it lives.
pub const OWNER_BEAT: Duration = Duration::from_millis(500);
/// How often it tries to get the lock that an earlier session of it may still hold: standbys look at the lock, too.
const LOCK_RETRY: Duration = Duration::from_millis(50);
/// A look that takes longer than this has failed.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// An owner that another node says to have replaced has this long to confirm that it was not.
const MAX_DOUBT: Duration = Duration::from_millis(500);
/// A handover waits until the storage answers within this time: an owner that has begun to hand over can answer nothing.
const MAX_CONFIRM: Duration = Duration::from_secs(2);
/// The longest wait of a node that ends for the records that its projections are applying.
const MAX_PROJECTION_END: Duration = Duration::from_secs(5);
/// Most nodes that a node which leaves connects to before it knows its successor.
const MAX_WARM_PEERS: usize = 8;

/// This node.
pub struct Node {
    pub name: String,
    /// Where other nodes reach it.
    pub address: String,
    pub version: String,
    /// An owner that is silent for this long is suspected.
    pub takeover_after: Duration,
    /// Whether this process replaces another one that has the same name. It takes the name in [`Phase::Replace`].
    pub replaces: bool,
}

/// What the node is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Own the ledger when nobody else does.
    #[default]
    Serve,
    /// The same, and take the name of the node from the process that this one replaces.
    Replace,
    /// Hand the ledger over if there is somebody to take it, and forward requests.
    Drain,
    End,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error("the state could not be recovered from the ledger: {0}")]
    Recovery(String),
    #[error(
        "the name {name} belongs to a node at {address}, which lives; give this node another name (cluster.node), or replace \
         the other one (lessor serve --replace)"
    )]
    NameTaken { name: String, address: String },
}

/// Reaches another node.
type Connect = Box<dyn FnMut(&NodeAddress) -> Arc<dyn Peer> + Send>;

/// Whether another node was heard a moment ago, by its name.
type IsHeard = Box<dyn Fn(&str) -> bool + Send>;

/// Runs a node. See [`Supervisor::run`].
pub struct Supervisor {
    node: Node,
    database: Database,
    membership: Membership,
    router: Router,
    connect: Connect,
    options: Box<dyn FnMut() -> Options + Send>,
    phase: watch::Receiver<Phase>,
    /// For the time of the owner. It never steps.
    clock: Clock,
    detector: FailureDetector,
    /// The owner that requests are forwarded to.
    routed_to: Option<OwnerRow>,
    own_row: OwnRow,
    /// Connections to the nodes that may own the ledger after this one.
    warm_peers: Vec<(NodeAddress, Arc<dyn Peer>)>,
    /// What the standby applies next.
    applied_next: Position,
    /// Where this node feeds its standbys from when it is the owner.
    feed: Feed,
    /// The newest batches, while it is a standby.
    kept: Kept,
    /// The stream of the owner.
    tail: Option<Tail>,
    /// Whether the server was recorded as one that holds everything that this node, as the owner, knows to be durable.
    server_is_recorded: bool,
    /// Whether this process has owned the ledger.
    has_owned: bool,
    /// Whether this node, as the owner, holds the owner's lock.
    has_lock: bool,
    /// None in tests without a network.
    is_heard: Option<IsHeard>,
    reachability: Reachability,
    /// Whether the last look has shown that this node, as the owner, is cut off from most others.
    is_cut_off: bool,
    /// Compares the storage with what is known to be durable.
    appending_again: Option<JoinHandle<()>>,
    preparation: Preparation,
    /// What the row of this node says that it holds, on this server.
    shown_holding: Option<Holding>,
    /// Whether a failover may have undone something, as far as the last look has shown.
    is_in_doubt: bool,
    /// What the list of nodes says about the stream.
    shown_as_fed: Option<bool>,
    /// Whether the operator was told that the database has lost records.
    told_of_loss: bool,
    /// Whether the database has another history, so that this node must not own the ledger.
    is_forked: bool,
    /// Where the positions of a fork are written.
    fork_file: Option<PathBuf>,
}

/// What a standby has come to.
enum Followed {
    Ended,
    Owns(Box<Running>),
}

impl Supervisor {
    /// `options` are those of a coordinator that this node starts when it takes over; `connect` reaches another node.
    pub fn new(
        node: Node,
        database: Database,
        router: Router,
        phase: watch::Receiver<Phase>,
        options: impl FnMut() -> Options + Send + 'static,
        connect: impl FnMut(&NodeAddress) -> Arc<dyn Peer> + Send + 'static,
    ) -> Supervisor {
        Supervisor {
            membership: Membership::new(database.clone()),
            clock: Clock::start(Time::ZERO),
            detector: FailureDetector::new(node.takeover_after),
            node,
            database,
            router,
            connect: Box::new(connect),
            options: Box::new(options),
            phase,
            routed_to: None,
            own_row: OwnRow::new(),
            warm_peers: Vec::new(),
            applied_next: Position::ZERO,
            feed: Feed::new(FeedOptions::default()),
            kept: Kept::default(),
            tail: None,
            server_is_recorded: false,
            has_owned: false,
            has_lock: false,
            is_heard: None,
            reachability: Reachability::default(),
            is_cut_off: false,
            appending_again: None,
            preparation: Preparation::default(),
            shown_holding: None,
            is_in_doubt: false,
            shown_as_fed: None,
            told_of_loss: false,
            is_forked: false,
            fork_file: None,
        }
    }

    /// Feeds standbys from here while this node is the owner.
    pub fn with_feed(self, feed: Feed) -> Supervisor {
        Supervisor { feed, ..self }
    }

    /// Writes the positions of a fork to this file.
    pub fn with_fork_file(self, file: PathBuf) -> Supervisor {
        Supervisor { fork_file: Some(file), ..self }
    }

    /// Shows the number of open connections in the list of nodes.
    pub fn with_connections(mut self, count: impl Fn() -> u64 + Send + 'static) -> Supervisor {
        self.own_row.connections = Box::new(count);
        self
    }

    /// What the node has come to know about itself.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.own_row.standing.subscribe()
    }

    /// Runs until the phase says to end, or until this node must not go on.
    pub async fn run(mut self) -> Result<(), Error> {
        loop {
            match self.follow().await? {
                Followed::Ended => break,
                Followed::Owns(running) => {
                    if self.lead(*running).await? {
                        break;
                    }
                }
            }
        }
        let left = async {
            let _ = self.membership.leave().await;
        };
        let _ = timeout(LOOK_TIMEOUT, left).await;
        Ok(())
    }

    fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    /// The time, by a clock that counts waits, and by one that counts suspends too.
    fn now(&self) -> (Instant, Time) {
        (Instant::now(), self.clock.now())
    }

    /// Owns the ledger until another node does, or until the node ends. Says whether it ends.
    async fn lead(&mut self, mut running: Running) -> Result<bool, Error> {
        let (epoch, handle) = (running.report.epoch, running.handle.clone());
        let (mut phase, mut ended) = (self.phase.clone(), self.membership.ended());
        let mut standbys = self.feed.standbys();
        let (mut news, mut hints) = (self.membership.news(), self.router.hints());
        // What came before this node could look at it counts, too.
        hints.mark_changed();
        let (mut replaced_by, mut beat_at) = (None, Instant::now() + OWNER_BEAT);
        let own = self.own_address();
        loop {
            self.router.metrics().set_fed_standbys(*standbys.borrow_and_update());
            let newest = replaced_by.unwrap_or(epoch);
            let happened = async {
                let beat = async {
                    until_beat(beat_at, &mut ended, &mut news).await;
                    self.beat(epoch, &handle).await
                };
                tokio::select! {
                    _ = phase.changed() => {}
                    _ = standbys.changed() => {}
                    (claimed, owner) = next_claim(&own, newest, &mut hints) => {
                        if !is_confirmed(&handle, MAX_DOUBT).await {
                            self.forward_to_successor(claimed, owner);
                            replaced_by = Some(claimed);
                        }
                    }
                    is_replaced = beat => {
                        beat_at = Instant::now() + if self.has_lock { OWNER_BEAT } else { LOCK_RETRY };
                        if (is_replaced? || replaced_by.is_some())
                            && is_confirmed(&handle, LOOK_TIMEOUT).await
                            && replaced_by.take().is_some()
                        {
                            self.router.own(epoch, &handle);
                        }
                    }
                }
                Ok::<(), Error>(())
            };
            tokio::select! {
                failure = running.failed() => {
                    if replaced_by.is_none() {
                        self.router.no_owner(epoch);
                    }
                    self.stopped_owning(failure, handle.durable().next()).await?;
                    return Ok(false);
                }
                happened = happened => happened?,
            }
            let is_cut_off = std::mem::take(&mut self.is_cut_off) && replaced_by.is_none();
            let is_over = match self.phase() {
                Phase::Serve | Phase::Replace => {
                    is_cut_off && (self.lacks_standby() || can_stop(&running).await)
                }
                Phase::Drain => can_stop(&running).await && self.has_successor().await,
                Phase::End => true,
            };
            if is_over {
                return self.hand_over(running, is_cut_off).await;
            }
        }
    }

    /// The ledger is another node's, or this node must not go on.
    async fn stopped_owning(&mut self, failure: Failure, durable: Position) -> Result<(), Error> {
        self.router.metrics().set_fed_standbys(0);
        // Nobody is told: a third node would take this for a handover, before the next owner has the lock.
        let _ = timeout(LOOK_TIMEOUT, self.membership.unlock()).await;
        match failure {
            Failure::Fenced(by) => tracing::warn!(%by, "another node has taken over; this node follows it"),
            Failure::Forked { at } => self.refuse(Fork { at, known: durable }),
            failure => return Err(failure.into()),
        }
        Ok(())
    }

    /// Gives the ledger to the next owner. Says whether the node ends.
    async fn hand_over(&mut self, running: Running, is_cut_off: bool) -> Result<bool, Error> {
        // Requests that come now wait for the next owner.
        self.router.no_owner(running.report.epoch);
        if is_cut_off {
            self.say_that_it_is_cut_off(running.report.epoch).await;
        }
        let mut phase = self.phase.clone();
        let end = async move {
            let _ = phase.wait_for(|phase| *phase == Phase::End).await;
        };
        let (epoch, handle) = (running.report.epoch, running.handle.clone());
        let projections = match running.hand_over(end).await {
            Ok(projections) => projections,
            Err(failure) => {
                // The last batch waited for the database, and another node has taken over meanwhile.
                self.stopped_owning(failure, handle.durable().next()).await?;
                return Ok(self.phase() == Phase::End);
            }
        };
        self.router.metrics().set_fed_standbys(0);
        if !self.server_is_recorded {
            // The next owner need not wonder whether a failover has undone something.
            let recorded = self.membership.record_server(epoch, handle.durable().next());
            let _ = timeout(MAX_CONFIRM, recorded).await;
        }
        let _ = timeout(LOOK_TIMEOUT, self.membership.release()).await;
        tracing::info!("the ledger was handed over");
        if self.phase() < Phase::End {
            return Ok(false);
        }
        let _ = timeout(MAX_PROJECTION_END, projections.wait()).await;
        Ok(true)
    }

    /// Shows that the owner lives, and keeps its lock, which is lost with its session. Says whether another node claims to
    /// be the owner.
    async fn beat(&mut self, epoch: u64, handle: &Handle) -> Result<bool, Error> {
        let phase = self.phase();
        (self.has_lock, self.is_cut_off) = (false, false);
        let beat = async {
            self.has_lock = self.membership.try_lock().await?;
            let is_written = self.membership.beat(handle.now().0).await?;
            let (membership, node) = (&mut self.membership, &self.node);
            if is_written {
                self.own_row.announce_in_time(membership, node, self.applied_next, phase).await?;
            } else {
                self.own_row.announce(membership, node, self.applied_next, phase).await?;
            }
            let observed = self.membership.observe().await?;
            self.own_row.note_order(observed.is_draining);
            let announced = observed.owner.as_ref().map_or(0, |owner| owner.epoch);
            let owner = OwnerRow { node: self.node.name.clone(), address: self.node.address.clone(), epoch };
            if observed.owner.as_ref() != Some(&owner)
                && let Some(last) = self.database.last_durable()
            {
                self.membership.record_owner(&owner, "announced late", handle.now().0, last).await?;
            }
            self.server_is_recorded &= !self.membership.take_is_new();
            if !self.server_is_recorded {
                let durable = handle.durable().next();
                self.server_is_recorded = self.membership.record_server(epoch, durable).await?;
            }
            self.is_cut_off = self.look_whether_it_is_cut_off().await?;
            Ok(announced > epoch)
        };
        // The ledger's own session shows whether the database works; nothing depends on this one.
        match timeout(LOOK_TIMEOUT, beat).await {
            Ok(Ok(is_replaced)) => {
                if !is_replaced && !self.server_is_recorded {
                    self.append_again(handle);
                }
                Ok(is_replaced)
            }
            Ok(Err(Failed::Database(_))) => Ok(false),
            Ok(Err(Failed::Refused(error))) => Err(error),
            Err(_) => {
                self.membership.hang_up();
                Ok(false)
            }
        }
    }

    /// Lets the storage compare its end with what is known to be durable: a failover may have undone some of it, and nobody may
    /// ask for anything. The beat goes on meanwhile.
    fn append_again(&mut self, handle: &Handle) {
        if self.appending_again.as_ref().is_none_or(JoinHandle::is_finished) {
            let handle = handle.clone();
            self.appending_again = Some(tokio::spawn(async move {
                let _ = timeout(LOOK_TIMEOUT, handle.status()).await;
            }));
        }
    }

    /// Whether another node could take over now, and stays. Connects to those that could, because this node forwards to one of
    /// them next.
    async fn has_successor(&mut self) -> bool {
        let successors = timeout(LOOK_TIMEOUT, self.membership.successors()).await;
        let Ok(Ok(successors)) = successors else { return false };
        let mut known = std::mem::take(&mut self.warm_peers);
        for (node, address) in successors.iter().take(MAX_WARM_PEERS) {
            let address = NodeAddress { node: node.as_str().into(), address: address.as_str().into() };
            let at = known.iter().position(|(known, _)| *known == address);
            let peer = at.map_or_else(|| (self.connect)(&address), |at| known.swap_remove(at).1);
            self.warm_peers.push((address, peer));
        }
        !successors.is_empty()
    }
}

/// Whether the storage takes what an owner that stops has decided last. Until it does, the owner stays: open polls are safe with it.
async fn can_stop(running: &Running) -> bool {
    is_confirmed(&running.handle, MAX_CONFIRM).await && *running.handle.takes_work().borrow()
}

/// Whether the ledger says within this time that its owner was not replaced: it confirms each read.
async fn is_confirmed(owner: &Handle, limit: Duration) -> bool {
    matches!(timeout(limit, owner.status()).await, Ok(Ok(_)))
}

/// Returns when an owner is to say that it lives: at this time, or when its session has ended or another node has said something.
async fn until_beat(at: Instant, ended: &mut watch::Receiver<u64>, news: &mut watch::Receiver<u64>) {
    tokio::select! {
        _ = ended.changed() => {}
        _ = news.changed() => {}
        () = sleep_until(at.into()) => {}
    }
}
