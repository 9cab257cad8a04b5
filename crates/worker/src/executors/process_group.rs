//! A command and everything it started. It can be waited for, and when it is over nothing of it runs any more.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, test_kill_process_group};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};
use wait4::Wait4;

use super::Usage;
use super::orphan_reaper::{self, Watched};

/// How long a command may take to end itself once it is told to.
pub(super) const TERM_GRACE: Duration = Duration::from_secs(1);
/// How long the killed may take to vanish; only a process that is stuck in the kernel takes longer.
const MAX_VANISH: Duration = Duration::from_secs(2);
const VANISH_PAUSE: Duration = Duration::from_millis(1);
/// How long a death is waited for before all are looked at again: who is not this process's child dies unheard.
const MAX_DEATH_WAIT: Duration = Duration::from_millis(10);

/// Somebody took too long to vanish, or was not waited for, so that the next one who cleans up has to look for more than
/// its own.
static IS_SOMEBODY_LEFT: AtomicBool = AtomicBool::new(false);

/// Held shared while a process is being started. A file that is open for writing is inherited by a process that is
/// being started until that process runs its program, and until then the file cannot be run ("text file busy").
static STARTING: RwLock<()> = RwLock::new(());

/// Waits until no process holds files that were closed here before. To be called after an executable was written.
pub(crate) fn let_starts_pass() {
    drop(STARTING.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
}

/// What keeps the processes of a command together, apart from their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bond {
    /// Nothing: any of them can leave the group.
    None,
    /// They are in a process namespace, which dies with its first process. That one is the leader's only child, and
    /// none of the others can ever fall to this process.
    Namespace,
}

/// A command that was started as the leader of a group of its own. When this is dropped, all of it is killed.
#[derive(Debug)]
pub(super) struct Started {
    id: Pid,
    bond: Bond,
    /// Where the command works.
    work_dir: PathBuf,
    /// Not there once it was waited for.
    leader: Option<(Child, Watched)>,
}

impl Started {
    pub(super) fn new(command: &mut Command, work_dir: &Path, bond: Bond) -> io::Result<Started> {
        orphan_reaper::adopt();
        command.process_group(0);
        let _starting = STARTING.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let leader = command.spawn()?;
        let id = i32::try_from(leader.id()).ok().and_then(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("a process without a number"))?;
        Ok(Started {
            id,
            bond,
            work_dir: work_dir.to_owned(),
            leader: Some((leader, orphan_reaper::watch(id))),
        })
    }
}

impl Drop for Started {
    /// What is killed is waited for by somebody who has the time.
    fn drop(&mut self) {
        let Some((mut leader, watched)) = self.leader.take() else { return };
        let _ = kill_process_group(self.id, Signal::KILL);
        let mut remains = Remains::new(self.id, self.bond, std::mem::take(&mut self.work_dir));
        std::thread::spawn(move || {
            let _ = leader.wait();
            drop(watched);
            while remains.are_left() {
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

    /// Waits for the leader's end.
    pub(super) async fn ends(&self) {
        drop(self.handle.readable().await);
    }

    /// Asks the group to end, and waits for a while that its leader does.
    pub(super) async fn terminate(&self) {
        let _ = kill_process_group(self.started.id, Signal::TERM);
        let _ = tokio::time::timeout(TERM_GRACE, self.ends()).await;
    }

    /// Kills all that is left, whether it is in the group or has left it, and waits until nothing of it is there. What was
    /// used up is told if it is known.
    pub(super) async fn reap(mut self) -> io::Result<(ExitStatus, Option<Usage>)> {
        // The number of the group is its leader's, who is not yet reaped: nobody else can have it.
        let _ = kill_process_group(self.started.id, Signal::KILL);
        self.ends().await;
        let mut deaths = signal(SignalKind::child())?;
        let Some((mut leader, watched)) = self.started.leader.take() else {
            return Err(io::Error::other("the process was waited for before"));
        };
        let (status, mut usage) = wait(&mut leader)?;
        // A namespace's first process is nobody else's to reap, who would not know whose times it has.
        let _watched = (self.started.bond == Bond::Namespace).then_some(watched);
        let work_dir = std::mem::take(&mut self.started.work_dir);
        let mut remains = Remains::new(self.started.id, self.started.bond, work_dir);
        while remains.are_left() {
            let _ = tokio::time::timeout(MAX_DEATH_WAIT, deaths.recv()).await;
        }
        usage += remains.usage;
        if self.started.bond == Bond::Namespace {
            // The leader is not one of the command's own, and nobody tells the memory of those.
            usage.max_rss_bytes = 0;
        }
        let is_known = self.started.bond == Bond::None || remains.is_one_reaped;
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

/// What there may be of a command once its leader is reaped.
struct Remains {
    id: Pid,
    bond: Bond,
    work_dir: PathBuf,
    /// Whether one of the group besides the leader was reaped.
    is_one_reaped: bool,
    /// Of those.
    usage: Usage,
    is_nobody_left: bool,
    give_up: Instant,
}

impl Remains {
    fn new(id: Pid, bond: Bond, work_dir: PathBuf) -> Remains {
        let give_up = Instant::now() + MAX_VANISH;
        Remains {
            id,
            bond,
            work_dir,
            is_one_reaped: false,
            usage: Usage::default(),
            is_nobody_left: false,
            give_up,
        }
    }

    /// Kills and reaps. Says whether there is more to wait for, which is so for a limited time only.
    fn are_left(&mut self) -> bool {
        self.is_nobody_left = !self.clean_up();
        !self.is_nobody_left && Instant::now() < self.give_up
    }

    fn clean_up(&mut self) -> bool {
        let group = orphan_reaper::reap_group(self.id);
        self.is_one_reaped |= group.is_one_reaped;
        self.usage += group.usage;
        // The kernel lets the first process of a namespace end when all others there are gone. So there is nobody to
        // look for, which takes much longer than everything else here. Who is reaped or waited for is that process.
        let is_all = self.bond == Bond::Namespace && (self.is_one_reaped || group.is_alive);
        if is_all && !IS_SOMEBODY_LEFT.load(Ordering::Relaxed) {
            return group.is_alive;
        }
        IS_SOMEBODY_LEFT.store(false, Ordering::Relaxed);
        let is_unfinished = orphan_reaper::sweep(&self.work_dir);
        IS_SOMEBODY_LEFT.fetch_or(is_unfinished, Ordering::Relaxed);
        group.is_alive || !is_all && (is_unfinished || test_kill_process_group(self.id).is_ok())
    }
}

impl Drop for Remains {
    fn drop(&mut self) {
        if !self.is_nobody_left {
            IS_SOMEBODY_LEFT.store(true, Ordering::Relaxed);
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

/// Until a new process runs its program it shares the memory of the one that started it, and the kernel counts that as
/// its own. So what is not more than this process ever had may be anybody's, and is not told.
fn own_memory(max_rss_bytes: u64) -> u64 {
    let of_this_process = getrusage(UsageWho::RUSAGE_SELF).map_or(i64::MAX, |used| used.max_rss());
    let of_this_process = u64::try_from(of_this_process).unwrap_or(0).saturating_mul(1 << 10);
    if max_rss_bytes > of_this_process { max_rss_bytes } else { 0 }
}

/// The exit code as a shell tells it: 128 and the signal's number for a command that a signal ended (R53).
pub(super) fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
