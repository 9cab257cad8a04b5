//! Applies [`TokenKeyRotated`].

use super::{At, InvalidTransition, TokenKeyRotated};
use crate::state::State;

impl TokenKeyRotated {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        state.set_token_key(self.key_id.clone(), at.position);
        Ok(())
    }
}
