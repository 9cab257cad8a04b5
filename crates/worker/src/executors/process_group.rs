//! A command and everything it started that stayed in its process group. It can be waited for, and when it is over
//! nothing of the group runs any more.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::RwLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// How long a command may take to end itself once it is told to.
pub const TERM_GRACE: Duration = Duration::from_secs(1);
/// How long the killed may take to vanish; only a process that is stuck in the kernel takes longer.
const MAX_VANISH: Duration = Duration::from_secs(2);
const VANISH_PAUSE: Duration = Duration::from_millis(1);

/// Held shared while a process is being started. A file that is open for writing is inherited by a process that is
/// being started until that process runs its program, and until then the file cannot be run ("text file busy").
static STARTING: RwLock<()> = RwLock::new(());

/// Waits until no process holds files that were closed here before. To be called after an executable was written.
pub fn let_starts_pass() {
    drop(STARTING.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
}

pub struct ProcessGroup {
    leader: Child,
    id: Pid,
    /// Nothing of the group is left to be killed.
    is_over: bool,
}

impl ProcessGroup {
    /// Starts a command as the leader of a group of its own.
    pub fn start(command: &mut Command) -> io::Result<ProcessGroup> {
        command.process_group(0);
        let leader = {
            let _starting = STARTING.read().unwrap_or_else(|poisoned| poisoned.into_inner());
            command.spawn()?
        };
        let id = leader.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let id = id.ok_or_else(|| io::Error::other("a process without a number"))?;
        Ok(ProcessGroup { leader, id, is_over: false })
    }

    /// Waits for the leader's end, and kills what is left of the group then.
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        let status = self.leader.wait().await?;
        // The group's number cannot have gone to others while there is somebody in it, and it does not go to others
        // in the moment since then, because numbers are given out in a circle.
        let _ = kill_process_group(self.id, Signal::KILL);
        self.is_over = true;
        let give_up = Instant::now() + MAX_VANISH;
        while test_kill_process_group(self.id).is_ok() && Instant::now() < give_up {
            sleep(VANISH_PAUSE).await;
        }
        Ok(status)
    }

    /// Asks the group to end, and kills it when its leader has not done so in time.
    pub async fn terminate(&mut self) -> io::Result<ExitStatus> {
        let _ = kill_process_group(self.id, Signal::TERM);
        if let Ok(ended) = tokio::time::timeout(TERM_GRACE, self.ended()).await {
            return ended;
        }
        let _ = kill_process_group(self.id, Signal::KILL);
        self.ended().await
    }
}

impl Drop for ProcessGroup {
    /// The leader is reaped by the runtime.
    fn drop(&mut self) {
        if !self.is_over {
            let _ = kill_process_group(self.id, Signal::KILL);
        }
    }
}

/// The exit code as a shell tells it: 128 and the signal's number for a command that a signal ended (R53).
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}
