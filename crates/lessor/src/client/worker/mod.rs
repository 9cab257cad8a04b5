//! `lessor worker list`, `drain`, `stop` and `resume`: the workers of a running server.

mod list;
mod order;

pub(crate) use list::{Options as ListOptions, run as list};
pub(crate) use order::{DrainOptions, ResumeOptions, StopOptions, drain, resume, stop};

use wire::Worker;

/// The state of a worker in one word: the operator's orders first, then its own.
fn state(worker: &Worker) -> &'static str {
    match &worker.registration {
        _ if worker.stopping => "STOPPING",
        _ if worker.drained && worker.active_leases > 0 => "DRAINING",
        _ if worker.drained => "DRAINED",
        Some(registration) => registration.state.name(),
        None => "",
    }
}
