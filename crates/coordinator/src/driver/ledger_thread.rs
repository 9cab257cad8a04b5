//! The thread that owns the ledger. It appends one batch at a time and has the ledger maintained in the background.
//! A batch that finds no space is held and tried again when there is space: it was decided, no answer was sent, and
//! nothing of it was stored.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use authority::{Position, Time};
use ledger::{AppendError, Batch, DiskSpace, Job, Ledger, Refusal, StopWaiting};
use tokio::sync::mpsc::UnboundedSender;

use super::Failure;
use super::snapshots::{SnapshotEvent, SnapshotThread};

/// The time between two attempts to find space on a full disk.
const RETRY_SPACE: Duration = Duration::from_secs(1);
/// The longest wait for the job that decides how much space there is. A slower job is not waited for.
const MAX_SPACE_WAIT: Duration = Duration::from_secs(1);

pub(super) enum LedgerEvent {
    Appended {
        batch: Batch,
        disk_space: DiskSpace,
        /// The duration of the append.
        took: Duration,
    },
    Confirmed,
    /// The batch found no space and is held.
    Held,
    Space(DiskSpace),
    Snapshot(SnapshotEvent),
    Failed(Failure),
}

enum Task {
    Append(Batch),
    Confirm,
    BeginSnapshot { begin: Position, block: Vec<u8> },
    Tend { now: Time },
    JobDone,
    Stop,
}

/// The driver's side of the thread.
pub(super) struct LedgerThread {
    tasks: Sender<Task>,
    stop_waiting: Option<StopWaiting>,
}

impl LedgerThread {
    pub(super) fn append(&self, batch: Batch) {
        self.send(Task::Append(batch));
    }

    pub(super) fn confirm(&self) {
        self.send(Task::Confirm);
    }

    /// Whether the storage may be waited for without end, and the wait can be given up.
    pub(super) fn may_wait_forever(&self) -> bool {
        self.stop_waiting.is_some()
    }

    pub(super) fn begin_snapshot(&self, begin: Position, block: Vec<u8>) {
        self.send(Task::BeginSnapshot { begin, block });
    }

    /// Runs the maintenance that is due after a snapshot.
    pub(super) fn tend(&self, now: Time) {
        self.send(Task::Tend { now });
    }

    /// A thread that has ended has already sent its last event.
    fn send(&self, task: Task) {
        let _ = self.tasks.send(task);
    }
}

impl Drop for LedgerThread {
    fn drop(&mut self) {
        self.send(Task::Stop);
        if let Some(stop_waiting) = &self.stop_waiting {
            stop_waiting();
        }
    }
}

/// Starts the thread. It ends when the returned `LedgerThread` is dropped, and drops the ledger.
pub(super) fn spawn(
    ledger: Box<dyn Ledger>,
    events: UnboundedSender<LedgerEvent>,
    snapshots: SnapshotThread,
) -> std::io::Result<(LedgerThread, thread::JoinHandle<()>)> {
    let (sender, tasks) = channel();
    let own = sender.clone();
    let stop_waiting = ledger.stop_waiting();
    let thread = thread::Builder::new().name("lessor-ledger".into()).spawn(move || {
        let _panic_notifier = PanicNotifier(events.clone());
        let mut owner = Owner {
            ledger,
            events,
            snapshots,
            held: None,
            now: Time::ZERO,
            own,
            later: VecDeque::new(),
            jobs: Vec::new(),
        };
        owner.run(&tasks);
        // Dropping the ledger releases its lock; no job may touch the storage after that.
        owner.jobs.into_iter().for_each(|job| drop(job.join()));
    })?;
    Ok((LedgerThread { tasks: sender, stop_waiting }, thread))
}

/// Reports a panic of the thread. Others can send events too, so the driver would not notice that this thread ended.
struct PanicNotifier(UnboundedSender<LedgerEvent>);

impl Drop for PanicNotifier {
    fn drop(&mut self) {
        if thread::panicking() {
            let what = "the thread that owns the ledger ended in a panic";
            let _ = self.0.send(LedgerEvent::Failed(Failure::Ledger(what.to_owned())));
        }
    }
}

struct Owner {
    ledger: Box<dyn Ledger>,
    events: UnboundedSender<LedgerEvent>,
    snapshots: SnapshotThread,
    held: Option<Batch>,
    /// The time of the newest batch or snapshot.
    now: Time,
    /// For the jobs, which report back.
    own: Sender<Task>,
    /// Tasks that arrived while the thread waited for a job.
    later: VecDeque<Task>,
    jobs: Vec<thread::JoinHandle<()>>,
}

impl Owner {
    fn run(&mut self, tasks: &Receiver<Task>) {
        self.tend(self.now);
        loop {
            let task = match (self.later.pop_front(), self.ledger.space()) {
                (Some(task), _) => Ok(task),
                (None, DiskSpace::Plenty) => tasks.recv().map_err(|_| RecvTimeoutError::Disconnected),
                (None, _) => tasks.recv_timeout(RETRY_SPACE),
            };
            match task {
                Ok(Task::Append(batch)) => self.append(batch, tasks),
                Ok(Task::Confirm) => match self.ledger.confirm() {
                    Ok(()) => self.notify(LedgerEvent::Confirmed),
                    Err(error) => self.notify(LedgerEvent::Failed(error.into())),
                },
                Ok(Task::BeginSnapshot { begin, block }) => {
                    self.snapshots.begin(self.ledger.begin_snapshot(begin), block);
                }
                Ok(Task::Tend { now }) => self.tend(now),
                Ok(Task::JobDone) => self.job_done(tasks),
                Err(RecvTimeoutError::Timeout) => self.tend(self.now),
                Ok(Task::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn append(&mut self, batch: Batch, tasks: &Receiver<Task>) {
        let began = Instant::now();
        match self.ledger.append(&batch) {
            Ok(()) => {
                let took = began.elapsed();
                self.tend(Time(batch.time_ms()));
                self.await_space(tasks);
                self.notify(LedgerEvent::Appended { batch, disk_space: self.ledger.space(), took });
            }
            Err(AppendError::Refused(Refusal::NoSpace)) => {
                tracing::error!("the disk is full; a batch waits for space");
                self.held = Some(batch);
                self.notify(LedgerEvent::Held);
            }
            Err(error) => self.notify(LedgerEvent::Failed(error.into())),
        }
    }

    /// Starts the maintenance that is due.
    fn tend(&mut self, now: Time) {
        self.now = now;
        while let Some(job) = self.ledger.tend(now) {
            if let Err(error) = self.spawn(job) {
                tracing::error!(%error, "a thread for maintenance could not be started; it is tried again");
                break;
            }
        }
    }

    /// Waits until it is known how much space there is, so that no append is acknowledged that takes the space of
    /// running work.
    fn await_space(&mut self, tasks: &Receiver<Task>) {
        let until = Instant::now() + MAX_SPACE_WAIT;
        while !self.ledger.is_space_known() {
            match tasks.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Task::JobDone) => {}
                Ok(task) => self.later.push_back(task),
                Err(_) => return,
            }
        }
    }

    /// Tries a held batch again if there is space now.
    fn job_done(&mut self, tasks: &Receiver<Task>) {
        let disk_space = self.ledger.space();
        match self.held.take() {
            Some(batch) if disk_space != DiskSpace::Nothing => self.append(batch, tasks),
            held => {
                self.held = held;
                self.notify(LedgerEvent::Space(disk_space));
            }
        }
    }

    /// Runs a job beside the appends.
    fn spawn(&mut self, job: Job) -> std::io::Result<()> {
        self.jobs.retain(|job| !job.is_finished());
        let (name, own) = (job.name, self.own.clone());
        let thread = thread::Builder::new().name(name.into()).spawn(move || {
            (job.run)();
            let _ = own.send(Task::JobDone);
        })?;
        self.jobs.push(thread);
        Ok(())
    }

    fn notify(&self, event: LedgerEvent) {
        let _ = self.events.send(event);
    }
}
