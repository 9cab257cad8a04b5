//! Applies [`KeyCreated`].

use super::{At, InvalidTransition, KeyCreated};
use crate::state::{State, StoredKey};

impl KeyCreated {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        if state.key(&self.key.id).is_some() {
            return Err(at.invalid(format!("there is a key {} already", self.key.id)));
        }
        state.insert_key(StoredKey { key: self.key.clone(), created_at: at.time, since: at.position });
        Ok(())
    }
}
