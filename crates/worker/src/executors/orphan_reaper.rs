//! Finds and kills processes that left their command's group, as daemons do.
//!
//! Orphans are reparented to this process (`PR_SET_CHILD_SUBREAPER`), which needs no permissions and cannot be escaped. The
//! command of an orphan is not known, but it must have run when the orphan was started. An orphan is killed when the last
//! of these commands has ended, and at once when it is busy in the directory of one that has. So a process that only one
//! command can have started is killed with that command.
//!
//! Children in the group of this process itself are not of commands and never touched.

use std::fs;
use std::path::Path;
use std::sync::Once;

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use parking_lot::Mutex;
use procfs::process::Stat;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};

use super::Usage;
use super::process_group::let_starts_pass;
use crate::proc;

static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());
/// The first process of a sandbox, which dies soon after its parent.
const SANDBOX: &str = "bwrap";
static ADOPTING: Once = Once::new();

#[derive(Clone, Copy, Debug)]
struct Running {
    leader: Pid,
    started_ticks: u64,
}

/// A running command, until this is dropped.
#[derive(Debug)]
pub(super) struct Watched {
    leader: Pid,
}

/// Called before the lock of starts is released.
pub(super) fn watch(leader: Pid) -> Watched {
    let started_ticks = proc::stat(leader).map_or(0, |stat| stat.starttime);
    RUNNING.lock().push(Running { leader, started_ticks });
    Watched { leader }
}

impl Drop for Watched {
    fn drop(&mut self) {
        RUNNING.lock().retain(|command| command.leader != self.leader);
    }
}

/// Reparents orphans to this process. If that is refused, they go to the init process and are not found.
pub(super) fn adopt() {
    ADOPTING.call_once(|| {
        if let Err(error) = set_child_subreaper(Some(getpid())) {
            tracing::warn!(%error, "processes that leave their command's group will not be found");
        }
    });
}

/// Children of this process in one group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    pub is_one_reaped: bool,
    pub is_alive: bool,
    pub usage: Usage,
}

/// Reaps the dead of a group, and reads the usage of each before.
pub(super) fn reap_group(group: Pid) -> Group {
    let group = nix::unistd::Pid::from_raw(group.as_raw_nonzero().get());
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let mut group_state = Group { is_one_reaped: false, is_alive: false, usage: Usage::default() };
    loop {
        let dead = match waitid(Id::PGid(group), flags) {
            Ok(WaitStatus::Exited(dead, _) | WaitStatus::Signaled(dead, _, _)) => dead,
            Err(nix::errno::Errno::EINTR) => continue,
            Ok(_) => return Group { is_alive: true, ..group_state },
            Err(_) => return group_state,
        };
        let Some(dead) = Pid::from_raw(dead.as_raw()) else { return group_state };
        if let Some(stat) = proc::stat(dead) {
            let (user_time, system_time) = proc::cpu_times(&stat);
            group_state.usage += Usage { user_time, system_time, max_rss_bytes: 0 };
        }
        let _ = waitpid(Some(dead), WaitOptions::NOHANG);
        group_state.is_one_reaped = true;
    }
}

/// Kills the orphans that no running command can have started and those that are busy in the directory of a command that
/// has ended, and reaps the dead. Returns whether a process was killed, which may have left others.
pub(super) fn sweep(ended: &Path) -> bool {
    let orphans = orphans();
    if orphans.is_empty() {
        return false;
    }
    // After this, a command that was only just started is listed as running.
    let_starts_pass();
    let running = RUNNING.lock().clone();
    let mut is_unfinished = false;
    for (id, stat) in orphans {
        let is_of_a_group = |command: &Running| command.leader.as_raw_nonzero().get() == stat.pgrp;
        let may_be_of = |command: &Running| command.started_ticks <= stat.starttime;
        if running.iter().any(is_of_a_group) {
            continue;
        }
        if proc::is_dead(&stat) {
            let _ = waitpid(Some(id), WaitOptions::NOHANG);
        } else if !running.iter().any(may_be_of) || stat.comm == SANDBOX || proc::is_busy_in(id, ended) {
            if stat.comm != SANDBOX {
                tracing::info!(pid = id.as_raw_nonzero().get(), "what a command left behind is killed");
            }
            let _ = kill_process(id, Signal::KILL);
            is_unfinished = true;
        }
    }
    is_unfinished
}

/// Children of this process that it did not start itself, or only just started as the leader of a group. Orphans are
/// reparented to the main thread.
fn orphans() -> Vec<(Pid, Stat)> {
    let this = getpid().as_raw_nonzero().get();
    let children = fs::read_to_string(format!("/proc/self/task/{this}/children"));
    let mut children: Vec<Pid> = match &children {
        Ok(children) => children.split_whitespace().filter_map(proc::parse_pid).collect(),
        Err(_) => proc::all(),
    };
    // Reading the state of a process is slow, and usually there is no orphan.
    let running: Vec<Pid> = RUNNING.lock().iter().map(|command| command.leader).collect();
    children.retain(|id| !running.contains(id));
    if children.is_empty() {
        return Vec::new();
    }
    // It is 0 if the group began outside of this process's container, for its children too.
    let Some(own_group) = proc::own_stat().map(|stat| stat.pgrp) else { return Vec::new() };
    let orphan = |id: Pid| proc::stat(id).filter(|stat| stat.ppid == this && stat.pgrp != own_group);
    children.into_iter().filter_map(|id| Some((id, orphan(id)?))).collect()
}
