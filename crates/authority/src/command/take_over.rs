//! A node becomes the owner of the ledger. It serves nothing before this is durable.

use std::sync::Arc;

use super::Decision;
use crate::event::{Event, OwnerTookOver};
use crate::{State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeOver {
    pub node: Arc<str>,
    /// The last line of the audit trail, as it was found.
    pub audit_head: Option<Arc<str>>,
}

impl TakeOver {
    pub(super) fn decide(&self, state: &State, _now: Time) -> Decision<bool> {
        let epoch = state.owner().map_or(1, |owner| owner.epoch + 1);
        let (node, audit_head) = (self.node.clone(), self.audit_head.clone());
        Decision::with(Event::OwnerTookOver(OwnerTookOver { epoch, node, audit_head }), false)
    }
}
