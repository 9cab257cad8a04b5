//! An owner that cannot use the database does not see there that it was replaced. The new owner announces itself to it, so that its
//! clients need not wait until it can.

use std::time::Duration;

use coordinator::{NodeAddress, OwnerHint};
use ledger::postgres::OwnerRow;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Supervisor;

/// For how long a new owner announces itself to the one before, which may be dead.
const MAX_ANNOUNCING: Duration = Duration::from_secs(60);

impl Supervisor {
    /// Announces to the owner before this one, if it lives, that this node has replaced it.
    pub(super) fn announce_to_previous_owner(&mut self, previous: &OwnerRow, epoch: u64) {
        let own = self.own_address();
        let peer = (self.connect)(&NodeAddress {
            node: previous.node.as_str().into(),
            address: previous.address.as_str().into(),
        });
        tokio::spawn(async move {
            let announced = peer.announce_owner(OwnerHint { epoch, owner: Some(own) });
            let _ = timeout(MAX_ANNOUNCING, announced).await;
        });
    }

    pub(super) fn own_address(&self) -> NodeAddress {
        NodeAddress { node: self.node.name.as_str().into(), address: self.node.address.as_str().into() }
    }

    /// Forwards requests to the node that says that it has replaced this owner, which cannot ask the ledger. What this owner has begun
    /// is refused by the ledger, or stays its own.
    pub(super) fn forward_to_successor(&mut self, epoch: u64, owner: NodeAddress) {
        tracing::warn!(
            owner = &*owner.node,
            epoch,
            "another node says that it has taken over; requests are forwarded to it"
        );
        let peer = (self.connect)(&owner);
        self.router.forward(epoch, owner, peer);
    }
}

/// Another node that claims to own the ledger in a later epoch. Only the ledger decides whether that is true.
pub(super) fn claimed_owner(own: &NodeAddress, epoch: u64, hint: &OwnerHint) -> Option<NodeAddress> {
    hint.owner.clone().filter(|owner| hint.epoch > epoch && owner != own)
}

/// Waits for a node to make such a claim, and returns the epoch that it claims.
pub(super) async fn next_claim(
    own: &NodeAddress,
    epoch: u64,
    hints: &mut watch::Receiver<OwnerHint>,
) -> (u64, NodeAddress) {
    loop {
        if hints.changed().await.is_err() {
            return std::future::pending().await;
        }
        let hint = hints.borrow_and_update().clone();
        if let Some(owner) = claimed_owner(own, epoch, &hint) {
            return (hint.epoch, owner);
        }
    }
}
