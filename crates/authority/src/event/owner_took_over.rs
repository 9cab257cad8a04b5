//! Applies [`OwnerTookOver`].

use super::{At, InvalidTransition, OwnerTookOver};
use crate::state::State;

impl OwnerTookOver {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        if state.owner().is_some_and(|owner| owner.epoch >= self.epoch) {
            return Err(at.invalid(format!("epoch {} does not rise", self.epoch)));
        }
        state.set_owner(self.epoch, self.node.clone(), at.position);
        Ok(())
    }
}
