//! The route to the owner of the ledger: this process, another node, or nobody known. The supervisor of the node sets it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use super::call::{Call, CallReply};
use super::configuration::{ConfigurationFollower, DEFAULT_FOLLOW_WAIT};
use super::front::{DEFAULT_FAILOVER_WAIT, Front};
use super::local::Local;
use super::peer::{NodeAddress, NoticeSource, OwnerHint, Peer};
use super::{Consistency, Handle, Target};
use crate::metrics::Metrics;
use crate::replica::Replica;

#[derive(Clone, Default)]
pub(super) struct Route {
    /// Rises with every change of the route.
    pub serial: u64,
    /// The epoch of the owner, or the newest one that is known to be over.
    pub epoch: u64,
    pub to: To,
}

#[derive(Clone, Default)]
pub(super) enum To {
    #[default]
    Unknown,
    Local(Arc<Local>),
    Peer {
        owner: NodeAddress,
        peer: Arc<dyn Peer>,
    },
}

/// Sets the route of a node's [`Handle`]. Once it is dropped, the handle answers that the coordinator has stopped.
pub struct Router {
    front: Arc<Front>,
    routes: watch::Sender<Route>,
}

/// The settings of a node's handle.
#[derive(Clone, Copy, Debug)]
pub struct RouterOptions {
    /// How long a request without an owner is held before it is refused.
    pub failover_wait: Duration,
    /// How long the answer to a change of keys waits for the nodes that are connected to this one, when it owns the ledger.
    pub follow_wait: Duration,
}

impl Default for RouterOptions {
    fn default() -> RouterOptions {
        RouterOptions { failover_wait: DEFAULT_FAILOVER_WAIT, follow_wait: DEFAULT_FOLLOW_WAIT }
    }
}

impl Router {
    /// A router without an owner, and the handle that it routes. Must be called within a runtime.
    pub fn new(options: RouterOptions) -> (Router, Handle) {
        let (routes, receiver) = watch::channel(Route::default());
        let front = Arc::new(Front::new(receiver, options));
        tokio::spawn(super::front::follow(
            front.routes.clone(),
            front.notices.clone(),
            options.failover_wait,
        ));
        (
            Router { front: front.clone(), routes },
            Handle { target: Target::Front(front), consistency: Consistency::Strong },
        )
    }

    /// This process owns the ledger: `handle` is that of the coordinator that [`crate::start`] started.
    pub fn own(&self, epoch: u64, handle: &Handle) {
        if let Target::Local(local) = &handle.target {
            if let Some(timeout_ms) = self.front.heartbeat_timeout_ms() {
                local.registry.set_heartbeat_timeout_ms(timeout_ms);
            }
            self.set(epoch, To::Local(local.clone()));
        }
    }

    /// Another node owns the ledger.
    pub fn forward(&self, epoch: u64, owner: NodeAddress, peer: Arc<dyn Peer>) {
        self.set(epoch, To::Peer { owner, peer });
    }

    /// Nobody is known to own the ledger; the owner of `epoch` was the last one.
    pub fn no_owner(&self, epoch: u64) {
        self.set(epoch, To::Unknown);
    }

    /// The state that stale reads of this node rest on; none when it follows nobody.
    pub fn set_replica(&self, replica: Option<Replica>) {
        self.front.set_replica(replica);
    }

    /// The metrics of this node's coordinators, for [`crate::Options::metrics`]: they count on when the node becomes the
    /// owner again.
    pub fn metrics(&self) -> Metrics {
        self.front.metrics.clone()
    }

    /// What other nodes have said about the owner. A hint: the ledger alone knows.
    pub fn hints(&self) -> watch::Receiver<OwnerHint> {
        self.front.hints.subscribe()
    }

    /// The calls of other nodes to this node.
    pub fn inbound(&self) -> Inbound {
        Inbound { front: self.front.clone() }
    }

    fn set(&self, epoch: u64, to: To) {
        self.routes.send_modify(|route| {
            let is_same = match (&route.to, &to) {
                (To::Unknown, To::Unknown) => true,
                (To::Local(a), To::Local(b)) => a.inbox.same_channel(&b.inbox),
                (To::Peer { peer: a, .. }, To::Peer { peer: b, .. }) => Arc::ptr_eq(a, b),
                _ => false,
            };
            if !is_same || epoch != route.epoch {
                *route = Route { serial: route.serial + 1, epoch, to };
            }
        });
    }
}

/// Answers the calls of other nodes while this node owns the ledger. Cheap to clone.
#[derive(Clone)]
pub struct Inbound {
    front: Arc<Front>,
}

impl Inbound {
    /// Answers a call of another node, which takes this node for the owner at `epoch`. A node that has not learned of that
    /// epoch yet lets the call wait for it, at most for the failover wait. Times in the call count from zero.
    pub async fn call(&self, call: Call, epoch: u64) -> Result<CallReply, OwnerHint> {
        let mut routes = self.front.routes.clone();
        let known = async { routes.wait_for(|route| route.epoch >= epoch).await.map(|route| route.clone()) };
        let known = tokio::time::timeout(self.front.failover_wait, known).await;
        let Ok(Ok(route)) = known else { return Err(self.hint()) };
        let To::Local(local) = &route.to else { return Err(self.hint()) };
        let call = call.rebased(authority::Time::ZERO, local.now());
        let reply = tokio::select! {
            reply = self.front.call_local(local, call) => reply,
            _ = routes.wait_for(|now| now.serial != route.serial) => return Err(self.hint()),
        };
        if super::front::is_over(&reply) {
            return Err(OwnerHint { epoch: route.epoch, owner: None });
        }
        Ok(reply.bounded())
    }

    /// Another node has said who owns the ledger.
    pub fn owner_announced(&self, owner: OwnerHint) {
        self.front.take_hint(owner);
    }

    /// The newest durable position, as far as this node knows.
    pub fn durable(&self) -> authority::Position {
        self.front.durable()
    }

    /// Notices for another node.
    pub fn notices(&self) -> NoticeSource {
        self.front.notices.source()
    }

    /// Another node that gets these notices, and says what it has followed.
    pub fn configuration_follower(&self) -> ConfigurationFollower {
        ConfigurationFollower::new(self.front.notices.0.clone())
    }

    /// Whether this node owns the ledger now, and its time.
    pub fn now_if_owner(&self) -> Option<authority::Time> {
        match &self.front.routes.borrow().to {
            To::Local(local) => Some(local.now()),
            To::Unknown | To::Peer { .. } => None,
        }
    }

    /// Resolves when the owner is no longer the one of this moment.
    pub async fn owner_changed(&self) {
        let mut routes = self.front.routes.clone();
        routes.mark_unchanged();
        let _ = routes.changed().await;
    }

    fn hint(&self) -> OwnerHint {
        let route = self.front.routes.borrow();
        let owner = match &route.to {
            To::Peer { owner, .. } => Some(owner.clone()),
            To::Unknown | To::Local(_) => None,
        };
        OwnerHint { epoch: route.epoch, owner }
    }
}

impl Front {
    /// Sets the heartbeat timeout of workers, also for the coordinators that this node starts later.
    pub(super) fn set_heartbeat_timeout_ms(&self, timeout_ms: u64) {
        self.heartbeat_timeout_ms.store(timeout_ms, Ordering::Relaxed);
        if let To::Local(local) = &self.routes.borrow().to {
            local.registry.set_heartbeat_timeout_ms(timeout_ms);
        }
    }

    /// The heartbeat timeout of workers that was set for this node, if it was.
    fn heartbeat_timeout_ms(&self) -> Option<u64> {
        Some(self.heartbeat_timeout_ms.load(Ordering::Relaxed)).filter(|timeout_ms| *timeout_ms > 0)
    }
}
