//! Kills the processes that a dead worker left in its directory.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::proc;

/// Kills every process that works in the worker's own directory or has a file open there. A process that went elsewhere
/// is not found. A person's shell at a terminal of its own is spared.
pub(super) fn kill_processes(own: &Path, dead_session: Option<i32>) {
    let this = rustix::process::getpid();
    for id in proc::all().into_iter().filter(|id| *id != this) {
        if proc::is_busy_in(id, own) && is_left_over(id, dead_session) {
            tracing::warn!(pid = id.as_raw_nonzero().get(), "killing a process of a worker that died");
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

/// Commands run in the worker's own session, or in one without a terminal if they made one.
fn is_left_over(id: Pid, dead_session: Option<i32>) -> bool {
    let Some(stat) = proc::stat(id) else { return false };
    let in_dead_session = dead_session == Some(stat.session);
    stat.tty_nr == 0 || (in_dead_session && stat.session != id.as_raw_nonzero().get())
}

/// The session of this process; 0 if the session began outside of the container.
pub(super) fn own_session() -> Option<i32> {
    proc::own_stat().map(|stat| stat.session)
}
