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
    let Some((session, terminal)) = session_and_terminal(process) else { return false };
    let in_dead_session = dead_session == Some(session);
    terminal == 0 || (in_dead_session && session != id.as_raw_nonzero().get())
}

/// The session of this process. It is 0 where the session began outside of the container that the process is in.
pub fn own_session() -> Option<i32> {
    session_and_terminal(Path::new("/proc/self")).map(|(session, _)| session)
}

fn session_and_terminal(process: &Path) -> Option<(i32, i32)> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // The name in parentheses may contain anything; after it come state, parent, group, session and terminal.
    let (_, fields) = stat.rsplit_once(')')?;
    let field = |n: usize| fields.split_whitespace().nth(n).and_then(|field| field.parse::<i32>().ok());
    Some((field(3)?, field(4)?))
}
