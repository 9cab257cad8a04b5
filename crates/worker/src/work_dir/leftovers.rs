//! Processes that a dead worker left behind: those that still have to do with its directory.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::proc::{self, ProcStat};

/// Kills every process that works in the worker's own directory, or has a file there open. One that went elsewhere is
/// not found: nothing tells whose it is. Somebody who looks around there at a terminal of their own is left in peace.
pub fn end_processes(own: &Path, dead_session: Option<i32>) {
    let this = rustix::process::getpid();
    for id in proc::all().into_iter().filter(|id| *id != this) {
        if proc::is_busy_in(id, own) && is_left_over(id, dead_session) {
            tracing::warn!(pid = id.as_raw_nonzero().get(), "a process of a worker that died is killed");
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

/// Commands run in the worker's own session, or in one without a terminal if they made one.
fn is_left_over(id: Pid, dead_session: Option<i32>) -> bool {
    let Some(stat) = ProcStat::of(id) else { return false };
    let in_dead_session = dead_session == Some(stat.session);
    stat.terminal == 0 || (in_dead_session && stat.session != id.as_raw_nonzero().get())
}

/// The session of this process. It is 0 where the session began outside of the container that the process is in.
pub fn own_session() -> Option<i32> {
    ProcStat::of_this_process().map(|stat| stat.session)
}
