//! A queue's settings were replaced.

use std::sync::Arc;

use super::{At, InvalidTransition};
use crate::state::State;
use crate::{QueueConfig, QueueKey};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueConfigured {
    pub queue: Arc<QueueKey>,
    pub config: QueueConfig,
}

impl QueueConfigured {
    pub(super) fn apply(&self, state: &mut State, at: At) -> Result<(), InvalidTransition> {
        state.configure(&self.queue, self.config.clone(), at.position);
        Ok(())
    }
}
