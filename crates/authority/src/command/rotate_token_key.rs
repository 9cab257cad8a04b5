//! From now on another key signs task tokens.

use std::sync::Arc;

use super::Decision;
use crate::event::{Event, TokenKeyRotated};
use crate::{State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotateTokenKey {
    pub key_id: Arc<str>,
}

impl RotateTokenKey {
    pub(super) fn decide(&self, state: &State, _now: Time) -> Decision<bool> {
        if state.token_key().is_some_and(|key| key.id == self.key_id) {
            return Decision::only(false);
        }
        Decision::with(Event::TokenKeyRotated(TokenKeyRotated { key_id: self.key_id.clone() }), false)
    }
}
