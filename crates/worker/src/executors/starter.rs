//! A thread that starts processes and never ends. The kernel kills a process that asked to die with its parent when the
//! thread that started it ends, so that threads of a pool cannot start such processes.

use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use tokio::sync::oneshot;

use super::process_group::{Containment, Started};

struct StartRequest {
    command: Command,
    work_dir: PathBuf,
    started: oneshot::Sender<io::Result<Started>>,
}

static REQUESTS: OnceLock<Sender<StartRequest>> = OnceLock::new();

/// Starts a command that creates a PID namespace. There are never more requests than commands.
pub(super) async fn start(command: Command, work_dir: PathBuf) -> io::Result<Started> {
    let (started, answer) = oneshot::channel();
    let ended = || io::Error::other("the thread that starts processes is gone");
    requests().send(StartRequest { command, work_dir, started }).map_err(|_| ended())?;
    answer.await.map_err(|_| ended())?
}

fn requests() -> &'static Sender<StartRequest> {
    REQUESTS.get_or_init(|| {
        let (sender, requests) = channel::<StartRequest>();
        std::thread::spawn(move || {
            for StartRequest { mut command, work_dir, started } in requests {
                // If the receiver is gone, the process is dropped and so killed.
                let _ = started.send(Started::new(&mut command, &work_dir, Containment::PidNamespace));
            }
        });
        sender
    })
}
