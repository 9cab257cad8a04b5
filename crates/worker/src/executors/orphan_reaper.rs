//! Processes that left their command's group, as daemons do: found again and killed.
//!
//! This process is made the one to which orphans fall (`PR_SET_CHILD_SUBREAPER`), which takes no rights and cannot be
//! escaped. An orphan does not say which command it came from, but it can only be from one that ran when the orphan
//! was started. It is killed when the last of these has ended, and at once when it still has to do with the directory
//! of one that has. A process that only one command can have started is so killed with that command.
//!
//! Children in the group of this process itself are somebody else's and never touched.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use procfs::process::Stat;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};

use super::Usage;
use super::process_group::let_starts_pass;
use crate::proc;

/// The commands of this process that run.
static RUNNING: Mutex<Vec<Running>> = Mutex::new(Vec::new());
/// The first process of a sandbox dies with who made it, which only takes it a moment.
const SANDBOX: &str = "bwrap";
static ADOPTING: Once = Once::new();

#[derive(Clone, Copy, Debug)]
struct Running {
    leader: Pid,
    started_ticks: u64,
}

/// One command that runs, until this is dropped.
#[derive(Debug)]
pub(super) struct Watched {
    leader: Pid,
}

/// To be called before starts are let pass the next time.
pub(super) fn watch(leader: Pid) -> Watched {
    let started_ticks = proc::stat(leader).map_or(0, |stat| stat.starttime);
    running().push(Running { leader, started_ticks });
    Watched { leader }
}

impl Drop for Watched {
    fn drop(&mut self) {
        running().retain(|command| command.leader != self.leader);
    }
}

/// Makes orphans fall to this process. Where that is refused, they fall to the init process and are not found.
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
    /// Of those that were reaped.
    pub usage: Usage,
}

/// Reaps the dead of a group, each looked at before, while it can still be read what it used up.
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

/// Kills what no running command can have started and what is busy in the directory of one that has ended, and reaps
/// the dead. Says whether somebody was killed and may have left others.
pub(super) fn sweep(ended: &Path) -> bool {
    let orphans = orphans();
    if orphans.is_empty() {
        return false;
    }
    // Whoever is among the orphans and was only just started by this process is known to be running after this.
    let_starts_pass();
    let running = running().clone();
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
/// given to the main thread.
fn orphans() -> Vec<(Pid, Stat)> {
    let this = getpid().as_raw_nonzero().get();
    let children = fs::read_to_string(format!("/proc/self/task/{this}/children"));
    let mut children: Vec<Pid> = match &children {
        Ok(children) => children.split_whitespace().filter_map(proc::parse_pid).collect(),
        Err(_) => proc::all(),
    };
    // Everything there is to read about a process takes a while, and mostly there is nobody else.
    let running: Vec<Pid> = running().iter().map(|command| command.leader).collect();
    children.retain(|id| !running.contains(id));
    if children.is_empty() {
        return Vec::new();
    }
    // It is 0 where the group began outside of the container that this process is in, for its children too.
    let Some(own_group) = proc::own_stat().map(|stat| stat.pgrp) else { return Vec::new() };
    let orphan = |id: Pid| proc::stat(id).filter(|stat| stat.ppid == this && stat.pgrp != own_group);
    children.into_iter().filter_map(|id| Some((id, orphan(id)?))).collect()
}

fn running() -> MutexGuard<'static, Vec<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}
