//! Replace a queue's settings. What is left out follows the defaults.

use std::sync::Arc;

use super::admission::admit_queue;
use super::{Decision, Refusal};
use crate::event::{Event, QueueConfigured};
use crate::{Actor, QueueConfig, QueueKey, State, Time};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigureQueue {
    pub queue: Arc<QueueKey>,
    pub config: QueueConfig,
    /// Who asks for it.
    pub by: Option<Arc<Actor>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigureAnswer {
    Configured,
    /// What is wrong, naming the setting.
    Invalid(String),
    Refused(Refusal),
}

impl ConfigureQueue {
    pub(super) fn decide(&self, state: &State, _now: Time) -> Decision<ConfigureAnswer> {
        if let Err(what) = self.config.check(&state.queue_defaults().of(&self.queue.name)) {
            return Decision::only(ConfigureAnswer::Invalid(what));
        }
        let queue = state.queue_by_key(&self.queue);
        if queue.is_none()
            && let Err(refusal) = admit_queue(state, &self.queue.scope.tenant)
        {
            return Decision::only(ConfigureAnswer::Refused(refusal));
        }
        match queue {
            Some(queue) if queue.configured.is_some() && queue.config == self.config => {
                Decision::only(ConfigureAnswer::Configured)
            }
            _ => {
                let (queue, config) = (self.queue.clone(), self.config.clone());
                let configured = QueueConfigured { queue, config, by: self.by.clone() };
                Decision::with(Event::QueueConfigured(configured), ConfigureAnswer::Configured)
            }
        }
    }
}
