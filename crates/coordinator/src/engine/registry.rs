//! The workers heard of since this process began. Advisory: it is empty after a restart, it is shown to people,
//! and it never changes a task.

use std::collections::HashMap;
use std::sync::Arc;

use authority::{Scope, State, Time};

use crate::request::WorkerView;

/// Most workers remembered; the one heard of longest ago makes room.
const MAX_WORKERS: usize = 10_000;

#[derive(Default)]
pub struct Registry {
    heard: HashMap<(Scope, Arc<str>), Time>,
}

impl Registry {
    pub fn hear(&mut self, scope: &Scope, worker: &Arc<str>, now: Time) {
        if let Some(heard) = self.heard.get_mut(&(scope.clone(), worker.clone())) {
            *heard = now;
            return;
        }
        if self.heard.len() >= MAX_WORKERS {
            let longest_ago = self.heard.iter().min_by_key(|(_, heard)| **heard).map(|(key, _)| key.clone());
            if let Some(key) = longest_ago {
                self.heard.remove(&key);
            }
        }
        self.heard.insert((scope.clone(), worker.clone()), now);
    }

    /// The workers of a scope, by name.
    pub fn view(&self, scope: &Scope, state: &State) -> Vec<WorkerView> {
        let mine = self.heard.iter().filter(|((other, _), _)| other == scope);
        let mut workers: Vec<_> = mine
            .map(|((_, worker), heard)| WorkerView {
                worker: worker.clone(),
                last_heartbeat: *heard,
                active_leases: state.lease_count(scope, worker),
            })
            .collect();
        workers.sort_by(|a, b| a.worker.cmp(&b.worker));
        workers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_heard_of_longest_ago_makes_room() {
        let scope = Scope { tenant: Arc::from("t"), workspace: Arc::from("w") };
        let mut registry = Registry::default();
        for n in 0..=MAX_WORKERS {
            registry.hear(&scope, &Arc::from(format!("w{n:05}")), Time(n as u64));
        }
        let view = registry.view(&scope, &State::new());
        assert_eq!(view.len(), MAX_WORKERS);
        assert_eq!(&*view[0].worker, "w00001");
    }
}
