//! End an API key.

use std::sync::Arc;

use super::Decision;
use crate::event::{Event, KeyRevoked};
use crate::{Actor, State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevokeKey {
    pub key_id: Arc<str>,
    pub revoked_by: Arc<str>,
    /// Who asks for it.
    pub by: Option<Arc<Actor>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeKeyAnswer {
    Revoked,
    /// No key that lives has this id.
    Unknown,
}

impl RevokeKey {
    pub(super) fn decide(&self, state: &State, _now: Time) -> Decision<RevokeKeyAnswer> {
        if state.key(&self.key_id).is_none() {
            return Decision::only(RevokeKeyAnswer::Unknown);
        }
        let (key_id, revoked_by, by) = (self.key_id.clone(), self.revoked_by.clone(), self.by.clone());
        Decision::with(Event::KeyRevoked(KeyRevoked { key_id, revoked_by, by }), RevokeKeyAnswer::Revoked)
    }
}
