//! The process group of a command: waits for the command, and kills everything that it started.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use parking_lot::RwLock;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, test_kill_process_group};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use wait4::Wait4;

use super::Usage;
use super::orphan_reaper::{self, Watched};

/// How long a command may take to end after SIGTERM.
pub(super) const TERM_GRACE: Duration = Duration::from_secs(1);
/// How long killed processes may take to vanish; only a process that is stuck in the kernel takes longer.
const MAX_VANISH: Duration = Duration::from_secs(2);
const VANISH_PAUSE: Duration = Duration::from_millis(1);
/// The longest wait for SIGCHLD before all processes are checked again: not all of them are children of this process.
const MAX_DEATH_WAIT: Duration = Duration::from_millis(10);

/// A process took too long to vanish, or was not waited for, so that the next cleanup has to look for all orphans.
static HAS_LEFTOVERS: AtomicBool = AtomicBool::new(false);

/// Held shared while a process is being started. Until the new process runs its program, it inherits files that are open
/// for writing, and these cannot be run ("text file busy").
static STARTING: RwLock<()> = RwLock::new(());

/// Waits until no new process holds files that were closed here before. Called after an executable was written.
pub(crate) fn let_starts_pass() {
    drop(STARTING.write());
}

/// The containment of a command's processes, apart from their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Containment {
    /// Any process can leave the group.
    None,
    /// A PID namespace, which dies with its first process. That process is the leader's only child, and no other process
    /// of the namespace is ever reparented to this process.
    PidNamespace,
}

/// A command that was started as the leader of its own group. Dropping it kills the group.
#[derive(Debug)]
pub(super) struct Started {
    id: Pid,
    containment: Containment,
    work_dir: PathBuf,
    /// `None` once it was waited for.
    leader: Option<(Child, Watched)>,
}

impl Started {
    pub(super) fn new(
        command: &mut Command,
        work_dir: &Path,
        containment: Containment,
    ) -> io::Result<Started> {
        orphan_reaper::adopt();
        command.process_group(0);
        let _starting = STARTING.read();
        let leader = command.spawn()?;
        let id = i32::try_from(leader.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("a process without a number"))?;
        Ok(Started {
            id,
            containment,
            work_dir: work_dir.to_owned(),
            leader: Some((leader, orphan_reaper::watch(id))),
        })
    }
}

impl Drop for Started {
    /// A thread waits for the killed processes.
    fn drop(&mut self) {
        let Some((mut leader, watched)) = self.leader.take() else { return };
        let _ = kill_process_group(self.id, Signal::KILL);
        let mut leftovers = Leftovers::new(self.id, self.containment, std::mem::take(&mut self.work_dir));
        std::thread::spawn(move || {
            let _ = leader.wait();
            drop(watched);
            while leftovers.clean_up() {
                std::thread::sleep(VANISH_PAUSE);
            }
        });
    }
}

#[derive(Debug)]
pub(super) struct ProcessGroup {
    started: Started,
    /// Readable when the leader has ended.
    handle: AsyncFd<OwnedFd>,
}

impl ProcessGroup {
    pub(super) fn new(started: Started) -> io::Result<ProcessGroup> {
        let handle = pidfd_open(started.id, PidfdFlags::NONBLOCK)?;
        Ok(ProcessGroup { started, handle: readable_at_end(handle)? })
    }

    pub(super) async fn ends(&self) {
        drop(self.handle.readable().await);
    }

    /// Asks the group to end, and waits for a while that its leader does.
    pub(super) async fn terminate(&self) {
        let _ = kill_process_group(self.started.id, Signal::TERM);
        let _ = tokio::time::timeout(TERM_GRACE, self.ends()).await;
    }

    /// Kills all remaining processes, whether in the group or not, and waits until they are gone. Returns the usage if it is
    /// known.
    pub(super) async fn reap(mut self) -> io::Result<(ExitStatus, Option<Usage>)> {
        // The id of the group is that of its leader, which is not yet reaped, so it cannot be reused.
        let _ = kill_process_group(self.started.id, Signal::KILL);
        self.ends().await;
        let mut deaths = signal(SignalKind::child())?;
        let Some((mut leader, watched)) = self.started.leader.take() else {
            return Err(io::Error::other("the process was waited for before"));
        };
        let (status, mut usage) = wait(&mut leader)?;
        // No other command may reap the namespace's first process, whose times belong to this one.
        let _watched = (self.started.containment == Containment::PidNamespace).then_some(watched);
        let work_dir = std::mem::take(&mut self.started.work_dir);
        let mut leftovers = Leftovers::new(self.started.id, self.started.containment, work_dir);
        while leftovers.clean_up() {
            let _ = tokio::time::timeout(MAX_DEATH_WAIT, deaths.recv()).await;
        }
        usage += leftovers.usage;
        if self.started.containment == Containment::PidNamespace {
            // The leader is not a process of the command, and the memory of those is not known.
            usage.max_rss_bytes = 0;
        }
        let is_known = self.started.containment == Containment::None || leftovers.is_one_reaped;
        Ok((status, is_known.then_some(usage)))
    }
}

#[allow(
    deprecated,
    reason = "it is unsound for descriptors that change while they are waited for; this one is owned"
)]
fn readable_at_end(handle: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(handle, Interest::READABLE)
}

/// The processes of a command that may be left after its leader is reaped.
struct Leftovers {
    id: Pid,
    containment: Containment,
    work_dir: PathBuf,
    /// Whether one of the group besides the leader was reaped.
    is_one_reaped: bool,
    /// Of the reaped processes.
    usage: Usage,
    are_gone: bool,
    give_up: Instant,
}

impl Leftovers {
    fn new(id: Pid, containment: Containment, work_dir: PathBuf) -> Leftovers {
        let give_up = Instant::now() + MAX_VANISH;
        let usage = Usage::default();
        Leftovers { id, containment, work_dir, is_one_reaped: false, usage, are_gone: false, give_up }
    }

    /// Kills and reaps. Returns whether to wait for more processes, for a limited time.
    fn clean_up(&mut self) -> bool {
        self.are_gone = !self.kill_and_reap();
        !self.are_gone && Instant::now() < self.give_up
    }

    fn kill_and_reap(&mut self) -> bool {
        let group = orphan_reaper::reap_group(self.id);
        self.is_one_reaped |= group.is_one_reaped;
        self.usage += group.usage;
        // The first process of a namespace ends after all others in it. So the slow search for orphans is not needed: the
        // process that is reaped or waited for is that first process.
        let is_all = self.containment == Containment::PidNamespace && (self.is_one_reaped || group.is_alive);
        if is_all && !HAS_LEFTOVERS.load(Ordering::Relaxed) {
            return group.is_alive;
        }
        HAS_LEFTOVERS.store(false, Ordering::Relaxed);
        let is_unfinished = orphan_reaper::sweep(&self.work_dir);
        HAS_LEFTOVERS.fetch_or(is_unfinished, Ordering::Relaxed);
        group.is_alive || !is_all && (is_unfinished || test_kill_process_group(self.id).is_ok())
    }
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        if !self.are_gone {
            HAS_LEFTOVERS.store(true, Ordering::Relaxed);
        }
    }
}

fn wait(leader: &mut Child) -> io::Result<(ExitStatus, Usage)> {
    loop {
        match leader.wait4() {
            Ok(ended) => {
                let used = ended.rusage;
                let max_rss_bytes = own_memory(used.maxrss);
                let usage = Usage { user_time: used.utime, system_time: used.stime, max_rss_bytes };
                return Ok((ended.status, usage));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Until a new process runs its program, the kernel counts the shared memory of its parent as its own. So a peak that is
/// not above that of this process is unknown.
fn own_memory(max_rss_bytes: u64) -> u64 {
    let of_this_process = getrusage(UsageWho::RUSAGE_SELF).map_or(i64::MAX, |used| used.max_rss());
    let of_this_process = u64::try_from(of_this_process).unwrap_or(0).saturating_mul(1 << 10);
    if max_rss_bytes > of_this_process { max_rss_bytes } else { 0 }
}

/// The exit code as in a shell: 128 and the signal's number if a signal ended the command (R53).
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
