//! Drives the engine in production: one thread decides, one owns the ledger, one writes snapshots.
//!
//! Requests of the next batch collect while the last batch is appended. Requests that have arrived when a batch is sent
//! are decided during its append. Later requests wake no thread; the driver finds them when the append is done.

mod deliver;
mod ledger_thread;
mod snapshots;
mod start;

pub use start::{EMBEDDED_NODE, Options, ProjectionsEnded, Running, StartError, StartReport, start};
pub(crate) use start::{Recovered, start_with};

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use authority::{Position, State, Time};
use ledger::{AppendError, Refusal};
use tokio::sync::{mpsc, oneshot, watch};

use crate::clock::Clock;
use crate::engine::{DiskSpace, Engine};
use crate::handle::Envelope;
use crate::journal_line::JournalLine;
use crate::metrics::Metrics;
use crate::request::Reply;
use crate::waiting::Waiting;
use ledger_thread::{LedgerEvent, LedgerThread};
use snapshots::Snapshots;

/// Requests that may wait to be decided. Beyond it the edge waits, and after a while refuses.
pub const INBOX_REQUESTS: usize = 16_384;
/// Requests taken from the inbox in one go.
const TAKE_REQUESTS: usize = 1_024;
/// A tick stays this far behind the clock, so that a request which was stamped but has not reached the inbox yet is
/// decided before it.
const TICK_LAG_MS: u64 = 2;
/// The longest sleep. Timers do not count suspend, so after a suspend the clock must be read again soon.
const MAX_SLEEP: Duration = Duration::from_secs(5);

/// A batch that takes longer than this to become durable is no longer a slow one: the disk stands still.
const MAX_SYNC_MS: u64 = 2_000;

/// Why the coordinator ended by itself.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    #[error("the ledger failed, so the coordinator has stopped: {0}")]
    Ledger(String),
    /// Another node owns the ledger now. This node may follow it.
    #[error("another node has taken over the ledger: {0}")]
    Fenced(String),
    /// The storage has another history than this node. It must not own the ledger.
    #[error("the storage has another history than this node from position {at} on")]
    Forked { at: Position },
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Failure {
        match error {
            AppendError::Refused(refusal @ Refusal::Fenced { .. }) => Failure::Fenced(refusal.to_string()),
            AppendError::Refused(Refusal::Forked { at }) => Failure::Forked { at },
            error => Failure::Ledger(error.to_string()),
        }
    }
}

/// What the driver waits for.
enum Wake {
    Ledger(Option<LedgerEvent>),
    Requests(usize),
    Stop(Stop),
    Due,
}

/// What the driver was asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stop {
    No,
    /// Stop when everything that was decided is durable, however long the storage takes.
    WhenDurable,
    /// The same, and fail when the storage does not answer.
    Now,
}

struct Driver {
    engine: Engine<oneshot::Sender<Reply>>,
    clock: Arc<Clock>,
    inbox: mpsc::Receiver<Envelope>,
    /// Taken from the inbox, and decided as soon as the engine takes more.
    pending: VecDeque<Envelope>,
    waiting: Waiting,
    ledger: LedgerThread,
    events: mpsc::UnboundedReceiver<LedgerEvent>,
    snapshots: Snapshots,
    shutdown: watch::Receiver<Stop>,
    /// The newest durable position, for projections.
    durable: watch::Sender<Position>,
    /// The receipt of the newest request that was decided.
    decided_up_to: Time,
    metrics: Metrics,
    /// Whether new work can be recorded.
    takes_work: watch::Sender<bool>,
    disk_space: DiskSpace,
    in_flight: bool,
    /// When the batch in flight was sent off.
    sent_at: Time,
    /// The batch in flight waits for space on the disk.
    held: bool,
    outbox: Vec<(oneshot::Sender<Reply>, Reply)>,
}

impl Driver {
    /// Runs until it is stopped and everything decided is durable, or until the ledger fails. Gives back the state: to free it takes
    /// long when there are many tasks.
    async fn run(mut self) -> (Result<(), Failure>, State) {
        let result = self.serve().await;
        self.outbox.extend(self.engine.take_all_waiting());
        self.deliver();
        self.inbox.close();
        while let Ok(envelope) = self.inbox.try_recv() {
            // Nobody decides it any more; the dropped sender says so.
            drop(envelope);
        }
        (result, self.engine.into_state())
    }

    async fn serve(&mut self) -> Result<(), Failure> {
        let mut requests = Vec::with_capacity(TAKE_REQUESTS);
        let (mut asked, mut open) = (Stop::No, true);
        loop {
            // Before the requests, which may depend on what the disk has said.
            while let Ok(event) = self.events.try_recv() {
                self.ledger_event(event)?;
            }
            self.take_arrived();
            self.decide();
            // What has come meanwhile is decided beside the sync of a batch that was just sent off.
            if self.step() || self.can_decide() {
                continue;
            }
            let gives_up = asked == Stop::Now;
            if !open && self.pending.is_empty() && (!self.in_flight || (self.held && gives_up)) {
                return self.check_held();
            }
            if gives_up && self.ledger.may_wait_forever() && self.is_stalled() {
                return Err(Failure::Ledger(
                    "the storage does not answer, and what was decided last may not be recorded".into(),
                ));
            }
            let due = self.until_due();
            // A full disk may stay full, so requests are taken and refused.
            let can_write = !self.in_flight || self.held;
            let take = open && can_write && self.pending.is_empty() && self.engine.takes_requests();
            let wake = tokio::select! {
                biased;
                event = self.events.recv() => Wake::Ledger(event),
                // Before the requests: under load there is always one more of them.
                stop = self.shutdown.wait_for(|stop| *stop > asked), if !gives_up => {
                    Wake::Stop(stop.map_or(Stop::Now, |stop| *stop))
                }
                taken = self.inbox.recv_many(&mut requests, TAKE_REQUESTS), if take => Wake::Requests(taken),
                () = tokio::time::sleep(due) => Wake::Due,
            };
            match wake {
                Wake::Ledger(Some(event)) => self.ledger_event(event)?,
                Wake::Ledger(None) => return Err(Failure::Ledger("the ledger thread is gone".into())),
                // The inbox is closed and empty: every handle is gone, or we are stopping.
                Wake::Requests(0) => open = false,
                Wake::Requests(_) => self.pending.extend(requests.drain(..)),
                Wake::Due => {}
                Wake::Stop(stop) => {
                    asked = stop;
                    self.inbox.close();
                    self.engine.end_polls();
                }
            }
        }
    }

    /// Takes requests that are there, without waiting for any.
    fn take_arrived(&mut self) {
        while self.pending.len() < TAKE_REQUESTS
            && self.engine.takes_requests()
            && let Ok(envelope) = self.inbox.try_recv()
        {
            self.pending.push_back(envelope);
        }
    }

    fn can_decide(&self) -> bool {
        !self.pending.is_empty() && self.engine.takes_requests()
    }

    fn decide(&mut self) {
        while self.engine.takes_requests()
            && let Some(Envelope { request, received_at, reply_to, permit, waiting_guard }) =
                self.pending.pop_front()
        {
            drop((permit, waiting_guard));
            self.decided_up_to = self.decided_up_to.max(received_at);
            self.engine.receive(request, received_at, reply_to);
        }
    }

    /// What follows from the requests and events so far: ticks, answers, a batch for the disk, a slice of a snapshot.
    /// Says whether a batch was sent off.
    fn step(&mut self) -> bool {
        let horizon = self.horizon();
        if self.engine.next_due() <= horizon {
            self.engine.tick(horizon);
        }
        // Before the batch is taken: leases that cannot be delivered are given back in it.
        self.deliver();
        let batch = if self.in_flight { None } else { self.engine.take_batch() };
        let sent = batch.is_some();
        let confirms = !sent && !self.in_flight && self.engine.begin_confirmation();
        if let Some(batch) = batch {
            self.snapshots.note_appended(batch.body_bytes());
            self.in_flight = true;
            self.sent_at = self.clock.now();
            self.ledger.append(batch);
        }
        if confirms {
            self.in_flight = true;
            self.sent_at = self.clock.now();
            self.ledger.confirm();
        }
        self.notify_takes_work();
        self.snapshots.step(&mut self.engine, &self.ledger);
        sent
    }

    /// The time up to which every request received is known to have been decided.
    fn horizon(&self) -> Time {
        let now = self.clock.now();
        let all_taken = self.inbox.is_empty() && self.pending.is_empty();
        match self.waiting.earliest() {
            None if all_taken => Time(now.0.saturating_sub(TICK_LAG_MS)),
            None => self.decided_up_to,
            // Others that came later did not have to wait, and were decided before it.
            Some(received_at) => received_at.min(self.decided_up_to),
        }
    }

    fn until_due(&self) -> Duration {
        let stalls_at = self.stalls_at().filter(|_| *self.takes_work.borrow());
        // When no requests are taken, only the disk can help, and time does not pass for what waits to be decided.
        let due = self.engine.takes_requests().then(|| self.engine.next_due().plus_ms(TICK_LAG_MS));
        match due.into_iter().chain(stalls_at).min() {
            Some(due) => Duration::from_millis(due.since_ms(self.clock.now())).min(MAX_SLEEP),
            None => MAX_SLEEP,
        }
    }

    /// When the batch in flight, if there is one, will have taken too long.
    fn stalls_at(&self) -> Option<Time> {
        self.in_flight.then(|| self.sent_at.plus_ms(MAX_SYNC_MS))
    }

    fn is_stalled(&self) -> bool {
        self.stalls_at().is_some_and(|at| at <= self.clock.now())
    }

    fn notify_takes_work(&self) {
        let takes_work = self.disk_space == DiskSpace::Plenty && !self.is_stalled();
        self.takes_work.send_if_modified(|last| std::mem::replace(last, takes_work) != takes_work);
    }

    fn set_disk_space(&mut self, disk_space: DiskSpace) {
        self.disk_space = disk_space;
        self.engine.set_disk_space(disk_space);
    }

    /// Nobody knows when there will be space, so neither a start nor a stop waits for it.
    fn check_held(&self) -> Result<(), Failure> {
        if self.held {
            return Err(Failure::Ledger(
                "the disk is full, and what was decided last is not recorded".into(),
            ));
        }
        Ok(())
    }

    fn ledger_event(&mut self, event: LedgerEvent) -> Result<(), Failure> {
        match event {
            LedgerEvent::Appended { batch, disk_space, took } => {
                (self.in_flight, self.held) = (false, false);
                self.set_disk_space(disk_space);
                let bytes = batch.body_bytes();
                let notes = self.engine.batch_durable(batch);
                self.metrics.batch(bytes, took, &notes.stats);
                notes.lines.iter().for_each(JournalLine::log);
                self.durable.send_replace(self.engine.durable());
                self.snapshots.durable(self.engine.durable());
                self.deliver();
                // Those who were answered will soon ask for more, and share the next sync if they come before it. On
                // a busy machine this lets them; on an idle one it returns at once.
                std::thread::yield_now();
            }
            LedgerEvent::Confirmed => {
                self.in_flight = false;
                self.engine.confirmed();
                self.deliver();
            }
            LedgerEvent::Held => {
                self.held = true;
                self.set_disk_space(DiskSpace::Nothing);
            }
            LedgerEvent::Space(disk_space) => self.set_disk_space(disk_space),
            LedgerEvent::Snapshot(event) => self.snapshots.event(event, &mut self.engine, &self.ledger),
            LedgerEvent::Failed(failure) => {
                if let Failure::Ledger(what) = &failure {
                    tracing::error!(%what, "the ledger failed; stopping, because what is on disk is unknown until the next start");
                }
                return Err(failure);
            }
        }
        Ok(())
    }
}
