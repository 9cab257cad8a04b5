//! How much more the worker can take on.
//!
//! A task's size is known only when it is there. One that does not fit beside what runs is given back at no cost, so
//! that another worker may have it, and nothing more is asked for until there is room for it: otherwise small tasks would
//! keep a large one out for ever. One that would never fit is a failed attempt, because to give it back would bring it
//! here again at once.

use wire::grpc::ErrorCategory;

use super::held::Held;
use super::resources::Resources;
use crate::Failure;

pub struct Capacity {
    slots: usize,
    total: Resources,
    /// What was given back last for want of room.
    wanted: Option<Resources>,
    /// Why nothing can be begun.
    unfit: Option<String>,
}

pub enum Fit {
    Now,
    Later,
    Never(Failure),
}

impl Capacity {
    pub fn new(slots: usize, total: Resources) -> Capacity {
        Capacity { slots, total, wanted: None, unfit: None }
    }

    /// The worker has looked at itself.
    pub fn set_fitness(&mut self, fitness: Result<(), String>) {
        match (&self.unfit, &fitness) {
            (None, Err(why)) => tracing::warn!(why, "no more tasks are taken until that is over"),
            (Some(_), Ok(())) => tracing::info!("tasks are taken again"),
            _ => {}
        }
        self.unfit = fitness.err();
    }

    pub fn is_fit(&self) -> bool {
        self.unfit.is_none()
    }

    /// How many more tasks to ask for. A slot is free once its command has ended; outputs that pile up meanwhile hold
    /// up new tasks all the same.
    pub fn room<'a>(&self, held: impl Iterator<Item = &'a Held> + Clone) -> usize {
        let lacks_wanted = self.wanted.is_some_and(|wanted| self.lacks(&wanted, held.clone()));
        if self.unfit.is_some() || lacks_wanted {
            return 0;
        }
        let busy = held.clone().filter(|held| held.has_slot).count();
        let free = self.slots.saturating_sub(busy);
        free.min((2 * self.slots).saturating_sub(held.count()))
    }

    /// Tasks were asked for while there was room.
    pub fn asked(&mut self) {
        self.wanted = None;
    }

    /// Whether a task that has come can be begun beside what is held.
    pub fn judge<'a>(&mut self, asked: &Resources, held: impl Iterator<Item = &'a Held> + Clone) -> Fit {
        if let Some(lacking) = asked.lacking(&self.total) {
            let message = format!("the task asks for more than this worker has: {lacking}");
            let failure = Failure::new(Failure::NOT_ENOUGH_RESOURCES, ErrorCategory::Infrastructure, message);
            return Fit::Never(failure.retryable());
        }
        if self.unfit.is_some() {
            return Fit::Later;
        }
        if self.lacks(asked, held) {
            self.wanted = Some(*asked);
            return Fit::Later;
        }
        Fit::Now
    }

    fn lacks<'a>(&self, asked: &Resources, held: impl Iterator<Item = &'a Held>) -> bool {
        let used = held.fold(Resources::default(), |used, held| used.plus(&held.uses()));
        used.plus(asked).lacking(&self.total).is_some()
    }
}
