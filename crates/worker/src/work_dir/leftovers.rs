//! Processes that a dead worker left behind: those that still work in its directory.

use std::fs;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

/// Kills every process whose working directory is in the worker's own directory. One that went elsewhere is not
/// found: nothing tells whose it is. Somebody who looks around there at a terminal of their own is left in peace.
pub fn end_processes(own: &Path, dead_session: Option<i32>) {
    let Ok(processes) = fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let id = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        let Some(id) = id else { continue };
        let works_here = fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(own));
        if works_here && is_left_over(&process.path(), id, dead_session) {
            tracing::warn!(pid = id.as_raw_nonzero().get(), "a process of a worker that died is killed");
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

/// Commands run in the worker's own session, or in one without a terminal if they made one.
fn is_left_over(process: &Path, id: Pid, dead_session: Option<i32>) -> bool {
    let Ok(stat) = fs::read_to_string(process.join("stat")) else { return false };
    // The name in parentheses may contain anything; after it come state, parent, group, session and terminal.
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let field = |n: usize| fields.split_whitespace().nth(n).and_then(|field| field.parse::<i32>().ok());
    let (session, terminal) = (field(3), field(4));
    let in_dead_session = session.is_some() && session == dead_session;
    terminal == Some(0) || (in_dead_session && session != Some(id.as_raw_nonzero().get()))
}
