//! A node became the owner of this ledger; every owner before it is fenced.

use std::sync::Arc;

use super::{At, InvalidTransition};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerTookOver {
    pub epoch: u64,
    pub node: Arc<str>,
}

impl OwnerTookOver {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        if state.owner().is_some_and(|owner| owner.epoch >= self.epoch) {
            return Err(at.invalid(format!("epoch {} does not rise", self.epoch)));
        }
        state.set_owner(self.epoch, self.node.clone(), at.position);
        Ok(())
    }
}
