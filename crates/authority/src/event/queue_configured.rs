//! Applies [`QueueConfigured`].

use super::{At, InvalidTransition, QueueConfigured};
use crate::state::State;

impl QueueConfigured {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        state.configure(&self.queue, self.config.clone(), at.position);
        Ok(())
    }
}
