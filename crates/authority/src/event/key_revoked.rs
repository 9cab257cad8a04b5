//! Applies [`KeyRevoked`].

use super::{At, InvalidTransition, KeyRevoked};
use crate::state::State;

impl KeyRevoked {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        if state.remove_key(&self.key_id) {
            Ok(())
        } else {
            Err(at.invalid(format!("there is no key {}", self.key_id)))
        }
    }
}
