//! From now on another key signs task tokens.

use std::sync::Arc;

use super::Decision;
use crate::event::{Event, TokenKeyRotated};
use crate::{Actor, State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RotateTokenKey {
    pub key_id: Arc<str>,
    /// Who asks for it.
    pub by: Option<Arc<Actor>>,
}

impl RotateTokenKey {
    pub(super) fn decide(&self, state: &State, _now: Time) -> Decision<bool> {
        if state.token_key().is_some_and(|key| key.id == self.key_id) {
            return Decision::only(false);
        }
        let rotated = TokenKeyRotated { key_id: self.key_id.clone(), by: self.by.clone() };
        Decision::with(Event::TokenKeyRotated(rotated), false)
    }
}
