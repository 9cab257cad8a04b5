//! A new key signs task tokens. Only its name is recorded, never the key.

use std::sync::Arc;

use super::{At, InvalidTransition};
use crate::state::State;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenKeyRotated {
    pub key_id: Arc<str>,
}

impl TokenKeyRotated {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        state.set_token_key(self.key_id.clone(), at.position);
        Ok(())
    }
}
