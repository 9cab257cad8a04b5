//! Push dispatch: tasks of a queue with a push target are leased to the target and sent to it, one POST each. The target's
//! worker reports through the callback contract.
//!
//! Targets share only the coordinator and the threads that look up names: each has its own dispatcher, connections and
//! bounds, so a slow target delays no other. Nothing here is remembered over a restart: the ledger knows the leases.

mod client;
mod connection_limiter;
mod dispatch;
mod dispatcher;
mod envelope;
mod health;
mod options;
mod resolver;
mod target_dispatcher;

pub(crate) use dispatcher::run;
pub use envelope::task_envelope;
pub use options::{PushOptions, fault_of_callback_url};

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore};

use crate::edge::address_guard::Guard;
use connection_limiter::ConnectionBudget;

/// Most outstanding dispatches that the coordinator is asked to watch at one time; others take turns. Clients wait for
/// tasks in the same place, and half of it stays theirs.
const MAX_WATCHES: usize = 10_000;

/// The state that handlers and dispatchers share.
pub(crate) struct Shared {
    options: PushOptions,
    pub(crate) guard: Guard,
    /// Somebody configured a queue.
    changed: Arc<Notify>,
    watches: Semaphore,
    connections: ConnectionBudget,
    look_ups: Arc<Semaphore>,
}

/// Wakes the dispatcher when it is dropped, so also when its request is given up half-way.
pub(crate) struct WakeOnDrop(Arc<Notify>);

impl Shared {
    pub(crate) fn new(options: PushOptions) -> Shared {
        Shared {
            guard: Guard::new(options.allow_private_targets),
            connections: ConnectionBudget::new(options.max_connections),
            options,
            changed: Arc::default(),
            watches: Semaphore::new(MAX_WATCHES),
            look_ups: resolver::look_ups(),
        }
    }

    pub(crate) fn wake_on_drop(&self) -> WakeOnDrop {
        WakeOnDrop(self.changed.clone())
    }
}

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Who holds the leases of the tasks that are pushed from a queue.
fn holder(queue: &str) -> Arc<str> {
    format!("push:{queue}").into()
}
