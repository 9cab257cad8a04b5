//! Removes directories, even if an action changed permissions, and kills the processes that a dead worker left.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::proc;

/// A process that is dying may still add a file while its directory is being removed.
const MAX_TRIES: u32 = 5;

/// Links are removed and never followed. A missing directory is not an error.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let mut tries = 0;
    loop {
        let error = match fs::remove_dir_all(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => error,
        };
        tries += 1;
        match error.kind() {
            _ if tries >= MAX_TRIES => return Err(error),
            io::ErrorKind::PermissionDenied => open_up(path)?,
            io::ErrorKind::DirectoryNotEmpty => {}
            _ => return Err(error),
        }
    }
}

/// Gives the owner all permissions on the directories, which removing their entries requires.
fn open_up(path: &Path) -> io::Result<()> {
    let mut rest = vec![path.to_owned()];
    while let Some(directory) = rest.pop() {
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                rest.push(entry.path());
            }
        }
    }
    Ok(())
}

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
