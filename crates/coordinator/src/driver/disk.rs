//! The thread that owns the ledger. It appends one batch at a time, keeps a reserve segment ready, and removes old
//! history. A batch that found no space is kept and tried again when there is some: it was decided, nobody has been
//! told, and nothing of it was written.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use authority::{Position, Time};
use ledger::file::{AppendError, Batch, FileLedger, Refusal, Reserved, Space, TrimJob};
use tokio::sync::mpsc::UnboundedSender;

use super::snapshots::{SnapshotEvent, SnapshotThread};
use crate::engine::DiskSpace;

/// The time between two attempts to find space on a full disk.
const RETRY_SPACE: Duration = Duration::from_secs(1);
/// With less than this left and no reserve, nothing more is decided: room for two usual batches, one on its way and one
/// that forms. A larger one that finds no place is held until there is some.
const ROOM_FOR_TWO_BATCHES_BYTES: u64 = 24 << 20;
/// With less than this left nothing is acknowledged before it is known whether there is a reserve: without one, the rest
/// belongs to what is running.
const ROOM_TO_FINISH_BYTES: u64 = ROOM_FOR_TWO_BATCHES_BYTES + (8 << 20);
/// The longest wait for that. A segment that takes longer to prepare is not waited for.
const MAX_RESERVE_WAIT: Duration = Duration::from_secs(1);

pub enum DiskEvent {
    Appended {
        batch: Batch,
        disk_space: DiskSpace,
        /// What its write and its sync took.
        took: Duration,
    },
    /// The batch found no space and waits for some.
    Held,
    Space(DiskSpace),
    Snapshot(SnapshotEvent),
    Failed(String),
}

enum Task {
    Append(Batch),
    Reserved(Result<Reserved, ledger::file::Fault>),
    BeginSnapshot { begin: Position, block: Vec<u8> },
    Trim { now: Time },
    Stop,
}

/// The driver's side of the thread.
pub struct Disk {
    tasks: Sender<Task>,
}

impl Disk {
    pub fn append(&self, batch: Batch) {
        self.send(Task::Append(batch));
    }

    pub fn begin_snapshot(&self, begin: Position, block: Vec<u8>) {
        self.send(Task::BeginSnapshot { begin, block });
    }

    pub fn trim(&self, now: Time) {
        self.send(Task::Trim { now });
    }

    /// A thread that is gone has said so in its last event.
    fn send(&self, task: Task) {
        let _ = self.tasks.send(task);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.send(Task::Stop);
    }
}

/// Starts the thread. It ends when the returned `Disk` is dropped, and the ledger's lock goes with it.
pub fn spawn(
    ledger: FileLedger,
    events: UnboundedSender<DiskEvent>,
    snapshots: SnapshotThread,
) -> std::io::Result<(Disk, thread::JoinHandle<()>)> {
    let (sender, tasks) = channel();
    let own = sender.clone();
    let thread = thread::Builder::new().name("lessor-disk".into()).spawn(move || {
        let _panic_notifier = PanicNotifier(events.clone());
        let mut owner = Owner {
            ledger,
            events,
            snapshots,
            held: None,
            full: false,
            own,
            later: VecDeque::new(),
            jobs: Vec::new(),
        };
        owner.run(&tasks);
        // The lock is given back with the ledger; no job of ours may touch the directory after that.
        owner.jobs.into_iter().for_each(|job| drop(job.join()));
    })?;
    Ok((Disk { tasks: sender }, thread))
}

/// Tells of a panic. Others can send events too, so the end of this thread alone does not show in them.
struct PanicNotifier(UnboundedSender<DiskEvent>);

impl Drop for PanicNotifier {
    fn drop(&mut self) {
        if thread::panicking() {
            let what = "the thread that owns the ledger ended in a panic";
            let _ = self.0.send(DiskEvent::Failed(what.to_owned()));
        }
    }
}

struct Owner {
    ledger: FileLedger,
    events: UnboundedSender<DiskEvent>,
    snapshots: SnapshotThread,
    held: Option<Batch>,
    /// Whether the last attempt to prepare a segment failed.
    full: bool,
    /// For the jobs that report back.
    own: Sender<Task>,
    /// What arrived while something else was waited for.
    later: VecDeque<Task>,
    jobs: Vec<thread::JoinHandle<()>>,
}

impl Owner {
    fn run(&mut self, tasks: &Receiver<Task>) {
        self.prepare_reserve();
        loop {
            let task = match (self.later.pop_front(), self.ledger.space()) {
                (Some(task), _) => Ok(task),
                (None, Space::Plenty) => tasks.recv().map_err(|_| RecvTimeoutError::Disconnected),
                (None, _) => tasks.recv_timeout(RETRY_SPACE),
            };
            match task {
                Ok(Task::Append(batch)) => self.append(batch, tasks),
                Ok(Task::Reserved(result)) => self.reserved(result, tasks),
                Ok(Task::BeginSnapshot { begin, block }) => {
                    self.snapshots.begin(self.ledger.begin_snapshot(begin), block);
                }
                Ok(Task::Trim { now }) => self.trim(now),
                Err(RecvTimeoutError::Timeout) => self.prepare_reserve(),
                Ok(Task::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn append(&mut self, mut batch: Batch, tasks: &Receiver<Task>) {
        let begun = Instant::now();
        match self.ledger.append(&mut batch) {
            Ok(()) => {
                let took = begun.elapsed();
                self.prepare_reserve();
                self.know_the_reserve(tasks);
                self.tell(DiskEvent::Appended { batch, disk_space: self.disk_space(), took });
            }
            Err(AppendError::Refused(Refusal::NoSpace)) => {
                tracing::error!("the disk is full; a batch waits for space");
                self.held = Some(batch);
                self.tell(DiskEvent::Held);
            }
            Err(error) => self.tell(DiskEvent::Failed(error.to_string())),
        }
    }

    fn prepare_reserve(&mut self) {
        let Some(job) = self.ledger.reserve_job() else { return };
        let own = self.own.clone();
        self.spawn("lessor-reserve", move || {
            let _ = own.send(Task::Reserved(job.run()));
        });
    }

    /// Waits for the reserve while the segment still holds enough for what is running.
    fn know_the_reserve(&mut self, tasks: &Receiver<Task>) {
        let until = Instant::now() + MAX_RESERVE_WAIT;
        while self.ledger.is_preparing_reserve() && self.ledger.room_bytes() < ROOM_TO_FINISH_BYTES {
            match tasks.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Task::Reserved(result)) => self.note_reserve(result),
                Ok(task) => self.later.push_back(task),
                Err(_) => return,
            }
        }
    }

    fn reserved(&mut self, result: Result<Reserved, ledger::file::Fault>, tasks: &Receiver<Task>) {
        self.note_reserve(result);
        match self.held.take() {
            Some(batch) if !self.full => self.append(batch, tasks),
            held => {
                self.held = held;
                self.tell(DiskEvent::Space(self.disk_space()));
            }
        }
    }

    fn note_reserve(&mut self, result: Result<Reserved, ledger::file::Fault>) {
        let full = result.is_err();
        match &result {
            Err(fault) if !self.full => {
                tracing::error!(%fault, "the next segment could not be prepared; new work is refused until it can");
            }
            Ok(_) if self.full => tracing::info!("there is space again; new work is taken"),
            _ => {}
        }
        self.full = full;
        self.ledger.reserve_done(result);
    }

    fn disk_space(&self) -> DiskSpace {
        match self.ledger.space() {
            Space::Plenty => DiskSpace::Plenty,
            _ if self.held.is_some() || self.ledger.room_bytes() < ROOM_FOR_TWO_BATCHES_BYTES => {
                DiskSpace::Nothing
            }
            _ => DiskSpace::FinishOnly,
        }
    }

    fn trim(&mut self, now: Time) {
        if let Some(job) = self.ledger.trim_job(now.0) {
            self.spawn("lessor-trim", move || trim(job));
        }
    }

    /// Runs a job beside the appends.
    fn spawn(&mut self, name: &str, job: impl FnOnce() + Send + 'static) {
        self.jobs.retain(|job| !job.is_finished());
        match thread::Builder::new().name(name.into()).spawn(job) {
            Ok(job) => self.jobs.push(job),
            Err(error) => tracing::error!(%error, name, "a thread could not be started"),
        }
    }

    fn tell(&self, event: DiskEvent) {
        let _ = self.events.send(event);
    }
}

fn trim(job: TrimJob) {
    match job.run() {
        Ok(files) => tracing::info!(files, "old history removed"),
        Err(fault) => tracing::error!(%fault, "old history could not be removed"),
    }
}
