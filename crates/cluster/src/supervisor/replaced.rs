//! An owner that cannot use the database does not see there that it was replaced. The new owner tells it, so that its clients need
//! not wait until it can.

use std::time::Duration;

use coordinator::{NodeAddress, OwnerHint};
use ledger::postgres::OwnerRow;
use tokio::time::timeout;

use super::Supervisor;

/// For how long the owner before is told, which may be dead.
const MAX_TELLING: Duration = Duration::from_secs(60);

impl Supervisor {
    /// Tells the owner before this one, if it lives, that this node has replaced it.
    pub(super) fn tell_previous_owner(&mut self, previous: &OwnerRow, epoch: u64) {
        let own =
            NodeAddress { node: self.node.name.as_str().into(), address: self.node.address.as_str().into() };
        let peer = (self.connect)(&NodeAddress {
            node: previous.node.as_str().into(),
            address: previous.address.as_str().into(),
        });
        tokio::spawn(async move {
            let told = peer.tell_owner(OwnerHint { epoch, owner: Some(own) });
            let _ = timeout(MAX_TELLING, told).await;
        });
    }

    /// Forwards requests to the node that says that it has replaced this owner. What this owner has begun is refused by the ledger, or
    /// stays its own: only the ledger decides which of them owns it. Returns the epoch of the other one.
    pub(super) fn forward_to_successor(&mut self, epoch: u64, hint: OwnerHint) -> Option<u64> {
        let owner = hint.owner.filter(|_| hint.epoch > epoch)?;
        tracing::warn!(
            owner = &*owner.node,
            epoch = hint.epoch,
            "another node says that it has taken over; requests are forwarded to it"
        );
        let peer = (self.connect)(&owner);
        self.router.forward(hint.epoch, owner, peer);
        Some(hint.epoch)
    }
}
