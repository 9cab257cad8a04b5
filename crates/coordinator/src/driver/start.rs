//! Starts a coordinator: restore, replay, take over, expire, and only then serve.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use authority::command::TakeOver;
use authority::{Command, LimitsByTenant, Position, QueueCreation, QueueDefaults, State, Time};
use ledger::{ProjectionOffsets, Recovery, RecoveryError, Storage};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use super::ledger_thread;
use super::snapshots::{SNAPSHOT_AFTER_BYTES, SnapshotThread, Snapshots};
use super::{Driver, Failure, INBOX_REQUESTS, Stop};
use crate::clock::Clock;
use crate::engine::{DiskSpace, Engine};
use crate::handle::{Handle, INBOX_KIB, Local, WAITING_KIB};
use crate::history::LedgerHistory;
use crate::metrics::Metrics;
use crate::projection::Projection;
use crate::projection_runner::ProjectionRunner;
use crate::purged::PurgedTasks;
use crate::request::Request;
use crate::waiting::Waiting;

/// After the clock jumped by more than this across a restart, nothing is purged for its age at first: the clock
/// may have been set wrong, and what is deleted does not come back.
const PLAUSIBLE_GAP_MS: u64 = 24 * 60 * 60 * 1_000;
const PURGE_HOLD_MS: u64 = 60 * 60 * 1_000;
/// The name under which the end of the hold is saved, as a number of milliseconds.
const CLOCK_JUMP: &str = "clock-jump";

pub struct Options {
    /// The projections that follow the ledger.
    pub projections: Vec<Box<dyn Projection>>,
    /// Memory for tasks. Near this limit old final tasks are purged early; at the limit submits are refused.
    pub max_state_bytes: usize,
    /// The part of that memory that final tasks may use. Beyond it the oldest ones are purged early.
    pub max_final_bytes: usize,
    /// What each tenant may use of the memory for tasks, and how many open tasks it may have.
    pub tenant_limits: LimitsByTenant,
    /// The defaults of queues that have their own.
    pub queue_defaults: QueueDefaults,
    /// Which queues a submit may create.
    pub queue_creation: QueueCreation,
    pub snapshot_after_bytes: u64,
    /// The name of the owner in the ledger's records.
    pub node: String,
    /// The last line of the audit trail, recorded with the start.
    pub audit_head: Option<Arc<str>>,
    /// The time of the owner before this one, where it is known: time goes on from there. Without it time begins with
    /// the wall clock.
    pub time: Option<Time>,
    /// Set by the storage while it waits for a standby that does not come; requests are refused meanwhile.
    pub lacks_standby: Arc<AtomicBool>,
    /// Where the writer counts. Those of a [`crate::Router`] count on over several coordinators of one process.
    pub metrics: Metrics,
}

/// The owner in the records of a server without other nodes.
pub const EMBEDDED_NODE: &str = "embedded";

impl Default for Options {
    fn default() -> Options {
        Options {
            projections: Vec::new(),
            max_state_bytes: usize::MAX,
            max_final_bytes: usize::MAX,
            tenant_limits: LimitsByTenant::default(),
            queue_defaults: QueueDefaults::default(),
            queue_creation: QueueCreation::default(),
            snapshot_after_bytes: SNAPSHOT_AFTER_BYTES,
            node: EMBEDDED_NODE.into(),
            audit_head: None,
            time: None,
            lacks_standby: Arc::default(),
            metrics: Metrics::default(),
        }
    }
}

/// The result of a start.
#[derive(Clone, Debug)]
pub struct StartReport {
    /// The end of the snapshot that was used, if any.
    pub snapshot: Option<Position>,
    pub replayed: u64,
    /// The time for the snapshot and the records: reading, verifying, decoding, applying.
    pub replay_took: Duration,
    /// The time from the opened ledger to serving.
    pub took: Duration,
    pub tasks: usize,
    /// The number of times that the ledger has been taken over, including this start.
    pub epoch: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Ledger(#[from] ledger::Error),
    #[error(transparent)]
    Recovery(#[from] RecoveryError),
    #[error("a thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// A coordinator that serves.
pub struct Running {
    pub handle: Handle,
    pub report: StartReport,
    stop: watch::Sender<Stop>,
    /// Resolves when the ledger is closed.
    ended: oneshot::Receiver<Result<(), Failure>>,
    /// Lets projections end with the record that they are applying.
    stop_projections: Arc<AtomicBool>,
    projections_ended: ProjectionsEnded,
    /// How far each projection has come.
    projections: Vec<watch::Receiver<Position>>,
    /// The newest record that was found at the start.
    found: Position,
}

impl Running {
    /// Waits until the projections have every record that was found at the start, at most for `patience`. Until then they may
    /// lack what an earlier process recorded last.
    pub async fn projections_caught_up(&mut self, patience: Duration) {
        let found = self.found;
        let caught_up = async {
            for projection in &mut self.projections {
                let _ = projection.wait_for(|applied| *applied >= found).await;
            }
        };
        if tokio::time::timeout(patience, caught_up).await.is_err() {
            tracing::warn!("the projections have not caught up with the ledger yet; serving all the same");
        }
    }

    /// Waits until the coordinator ends by itself, which it does only when the ledger fails.
    pub async fn failed(&mut self) -> Failure {
        match (&mut self.ended).await {
            Ok(Err(failure)) => failure,
            Ok(Ok(())) => Failure::Ledger("the coordinator was stopped".into()),
            Err(_) => Failure::Ledger("the coordinator's thread ended in a panic".into()),
        }
    }

    /// Stops: no more requests, what was decided becomes durable and is answered, the projections get it, the lock is given back.
    /// Fails when the storage does not answer.
    pub async fn stop(self) -> Result<(), Failure> {
        let _ = self.stop.send(Stop::Now);
        let ended = ended(self.ended).await;
        self.projections_ended.wait().await;
        ended
    }

    /// Stops for the next owner: no more requests, and what was decided becomes durable and is answered, however long the
    /// storage takes until `give_up` resolves. Projections are not waited for: the next owner continues them from their offsets.
    pub async fn hand_over(self, give_up: impl Future<Output = ()>) -> Result<ProjectionsEnded, Failure> {
        self.stop_projections.store(true, Ordering::Release);
        let _ = self.stop.send(Stop::WhenDurable);
        let mut ended = pin!(ended(self.ended));
        let result = tokio::select! {
            result = &mut ended => result,
            () = give_up => {
                let _ = self.stop.send(Stop::Now);
                ended.await
            }
        };
        result.map(|()| self.projections_ended)
    }
}

async fn ended(ended: oneshot::Receiver<Result<(), Failure>>) -> Result<(), Failure> {
    ended.await.unwrap_or_else(|_| Err(Failure::Ledger("the coordinator's thread ended in a panic".into())))
}

/// The projections of a coordinator that has stopped: each ends with the record that it applies.
#[derive(Debug)]
pub struct ProjectionsEnded(oneshot::Receiver<()>);

impl ProjectionsEnded {
    /// Waits until no projection writes any more.
    pub async fn wait(self) {
        // The sender is dropped when the last one has ended.
        let _ = self.0.await;
    }
}

/// A state that was recovered from a ledger, and what it took.
pub(crate) struct Recovered {
    pub state: State,
    /// The end of the snapshot that was used, if any.
    pub snapshot: Option<Position>,
    pub replayed: u64,
    pub replayed_bytes: u64,
    pub took: Duration,
}

/// Starts a coordinator on a ledger that a storage backend has opened. Blocks while the ledger is replayed.
pub fn start(storage: Storage, options: Options) -> Result<Running, StartError> {
    let began = Instant::now();
    let snapshot = storage.ledger.reader().snapshots()?.last().map(|snapshot| snapshot.end);
    let recovery = Recovery::newest(&*storage.ledger)?;
    let (replayed, replayed_bytes) = (recovery.records(), recovery.bytes());
    let state = recovery.into_state();
    let recovered = Recovered { state, snapshot, replayed, replayed_bytes, took: began.elapsed() };
    start_with(storage, recovered, options)
}

/// Starts a coordinator on a ledger whose state was recovered up to its end.
pub(crate) fn start_with(
    storage: Storage,
    recovered: Recovered,
    options: Options,
) -> Result<Running, StartError> {
    let began = Instant::now();
    let Storage { mut ledger, offsets } = storage;
    let reader = ledger.reader();
    let Recovered { mut state, snapshot, replayed, replayed_bytes, took: replay_took } = recovered;
    state.set_max_bytes(options.max_state_bytes);
    state.set_max_final_bytes(options.max_final_bytes);
    state.set_tenant_limits(options.tenant_limits);
    state.set_queue_defaults(options.queue_defaults);
    state.set_queue_creation(options.queue_creation);
    // The epoch that this start will record.
    let epoch = state.owner().map_or(1, |owner| owner.epoch + 1);
    let clock = match options.time {
        Some(time) => Clock::resume(time.max(state.time())),
        None => Clock::start(state.time()),
    };
    let clock = Arc::new(clock);
    let hold = purge_hold(&state, clock.now(), &*offsets, epoch);
    let (tasks, found) = (state.len(), state.position());

    let wanted = ledger.wants_changes();
    ledger.recovered(&state)?;

    // Not bounded by itself: one batch, one snapshot step and one job of each kind are in work at a time, and each
    // answers once.
    let has_other_writers = ledger.has_other_writers();
    let (events_sender, events) = mpsc::unbounded_channel();
    let (snapshots, snapshot_thread) = SnapshotThread::spawn(events_sender.clone())?;
    let (ledger, ledger_thread) = ledger_thread::spawn(ledger, events_sender, snapshots.clone())?;
    let (inbox_sender, inbox) = mpsc::channel(INBOX_REQUESTS);
    let waiting = Waiting::default();
    let (stop, shutdown) = watch::channel(Stop::No);
    let metrics = options.metrics;
    let (takes_work, takes_work_changes) = watch::channel(true);
    let (durable, durable_positions) = watch::channel(state.position());
    let mut driver = Driver {
        engine: Engine::new(state, hold),
        clock: clock.clone(),
        inbox,
        pending: VecDeque::new(),
        waiting: waiting.clone(),
        ledger,
        events,
        snapshots: Snapshots::new(snapshots, options.snapshot_after_bytes, replayed_bytes),
        shutdown,
        durable,
        decided_up_to: Time::ZERO,
        metrics: metrics.clone(),
        takes_work,
        disk_space: DiskSpace::Plenty,
        in_flight: false,
        sent_at: Time::ZERO,
        held: false,
        outbox: Vec::new(),
    };
    if has_other_writers {
        driver.engine.confirm_answers();
    }
    driver.engine.collect_changes(wanted);
    let stop_projections = Arc::new(AtomicBool::new(false));
    let runners = options
        .projections
        .into_iter()
        .map(|projection| {
            let (offsets, reader) = (offsets.clone(), reader.clone());
            let runner =
                ProjectionRunner::open_with(projection, offsets, epoch, reader, driver.engine.state())?
                    .stopped_by(stop_projections.clone());
            let (progress, applied) = watch::channel(runner.applied_up_to());
            Ok(((runner, progress), applied))
        })
        .collect::<Result<Vec<_>, StartError>>()?;
    let (runners, projections): (Vec<_>, Vec<_>) = runners.into_iter().unzip();
    let followed = durable_positions.clone();
    let registry = driver.engine.registry().clone();
    let (ended_sender, ended) = oneshot::channel();
    let (projections_running, projections_ended) = oneshot::channel();
    let (ready_sender, ready) = std::sync::mpsc::channel();
    let take_over = TakeOver { node: options.node.as_str().into(), audit_head: options.audit_head };
    std::thread::Builder::new().name("lessor-writer".into()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let (mut projection_threads, mut last_state) = (Vec::new(), None);
        let result = match runtime {
            Err(error) => Err(Failure::Ledger(error.to_string())),
            Ok(runtime) => runtime.block_on(async {
                driver.take_over(take_over).await?;
                let epoch = driver.engine.state().owner().map_or(0, |owner| owner.epoch);
                let _ = ready_sender.send(Ok(epoch));
                // Only an owner runs projections.
                for (runner, progress) in runners {
                    let spawned = runner.spawn(followed.clone(), progress);
                    projection_threads.push(spawned.map_err(|error| Failure::Ledger(error.to_string()))?);
                }
                drop(followed);
                let (result, state) = driver.run().await;
                last_state = Some(state);
                result
            }),
        };
        // The driver is gone, so these threads end, and the ledger is closed.
        [ledger_thread, snapshot_thread].into_iter().for_each(|thread| drop(thread.join()));
        // A start that failed has closed its ledger when its caller knows.
        if let Err(failure) = &result {
            let _ = ready_sender.send(Err(failure.clone()));
        }
        let _ = ended_sender.send(result);
        // The next owner does not wait for this.
        drop(last_state);
        // When these have ended, no thread of this coordinator touches the storage any more.
        projection_threads.into_iter().for_each(|thread| drop(thread.join()));
        drop::<oneshot::Sender<()>>(projections_running);
    })?;
    let epoch =
        ready.recv().map_err(|_| Failure::Ledger("the coordinator's thread ended in a panic".into()))??;
    let handle = Handle::of(Local {
        inbox: inbox_sender,
        inbox_kib: Arc::new(Semaphore::new(INBOX_KIB)),
        waiting_kib: Arc::new(Semaphore::new(WAITING_KIB)),
        clock,
        waiting,
        history: Arc::new(LedgerHistory::new(reader.clone())),
        purged: PurgedTasks::new(reader),
        registry,
        metrics,
        takes_work: takes_work_changes,
        durable: durable_positions,
        lacks_standby: options.lacks_standby,
    });
    let took = replay_took + began.elapsed();
    let report = StartReport { snapshot, replayed, replay_took, took, tasks, epoch };
    let projections_ended = ProjectionsEnded(projections_ended);
    Ok(Running { handle, report, stop, ended, stop_projections, projections_ended, projections, found })
}

impl Driver {
    /// The first act of an owner: record that it is one, and expire what ran out meanwhile. Nothing is served before
    /// both are durable.
    async fn take_over(&mut self, take_over: TakeOver) -> Result<(), Failure> {
        let now = self.clock.now();
        let (no_caller, _) = oneshot::channel();
        self.engine.receive(Request::decide(Command::TakeOver(take_over)), now, no_caller);
        self.engine.tick(now);
        self.step();
        while self.in_flight {
            let event = self
                .events
                .recv()
                .await
                .ok_or_else(|| Failure::Ledger("the ledger thread is gone".into()))?;
            self.ledger_event(event)?;
            self.check_held()?;
            self.step();
        }
        Ok(())
    }
}

/// Until when nothing is purged for its age: for a while after the clock jumped, also if that was an earlier start.
fn purge_hold(state: &State, now: Time, offsets: &dyn ProjectionOffsets, epoch: u64) -> Time {
    let gap = now.since_ms(state.time());
    if state.is_empty() || gap <= PLAUSIBLE_GAP_MS {
        match offsets.load(CLOCK_JUMP) {
            // A hold that ends later than one begun now was begun by a clock that has been set right since.
            Ok(end) => {
                let end = end.map_or(Time::ZERO, |end| Time(end.0));
                return if end > now.plus_ms(PURGE_HOLD_MS) { Time::ZERO } else { end };
            }
            Err(error) => tracing::warn!(%error, "the end of the purge hold cannot be read"),
        }
    } else {
        tracing::warn!(
            hours = gap / 3_600_000,
            "the clock is far ahead of the newest record; if it is right, old tasks are purged in an hour"
        );
    }
    let end = now.plus_ms(PURGE_HOLD_MS);
    // Before this start's first record, which hides the jump from the next start.
    if let Err(error) = offsets.save(CLOCK_JUMP, Position(end.0), epoch) {
        tracing::warn!(%error, "the purge hold could not be saved; a restart within the hour purges old tasks");
    }
    end
}
