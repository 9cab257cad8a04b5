//! A task as its handler sees it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use wire::Json;

use crate::Metrics;
use crate::assignment::Assignment;
use crate::failure::{Failure, truncate};
use crate::lease_clock::LeaseClock;

/// One attempt of a task and its lease. A clone is the same attempt.
#[derive(Clone, Debug)]
pub struct Task(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    assignment: Assignment,
    /// Canceled when the handler should stop, for whatever reason.
    cancellation: CancellationToken,
    state: Mutex<Live>,
    progressed: Notify,
}

#[derive(Debug)]
struct Live {
    clock: LeaseClock,
    reason: Option<String>,
    is_lost: bool,
    progress: Option<Progress>,
    metrics: Option<Metrics>,
}

/// The attempt's progress, for people.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub pct: Option<f64>,
    pub message: Option<String>,
}

/// Defines methods that return a field of the assignment.
macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident: $type:ty = |$task:ident| $field:expr;)*) => {$(
        $(#[$doc])*
        pub fn $name(&self) -> $type {
            let $task = &self.0.assignment;
            $field
        }
    )*};
}

impl Task {
    pub(crate) fn new(assignment: Assignment, clock: LeaseClock) -> Task {
        let state = Live { clock, reason: None, is_lost: false, progress: None, metrics: None };
        let cancellation = CancellationToken::new();
        let (state, progressed) = (Mutex::new(state), Notify::new());
        Task(Arc::new(Shared { assignment, cancellation, state, progressed }))
    }

    getters! {
        id: &str = |task| &task.task_id;
        queue: &str = |task| &task.queue;
        /// Which attempt this is, from 1.
        attempt: u32 = |task| task.attempt;
        payload_json: &Json = |task| &task.payload;
        /// Higher for every later lease: hand it to systems that can refuse an older one.
        fencing_token: u64 = |task| task.fencing_token;
        deadline: Option<Timestamp> = |task| task.deadline;
        /// How long this attempt may take. Pushed tasks do not say.
        timeout: Option<Duration> = |task| task.timeout;
        run_id: Option<&str> = |task| task.context.run_id.as_deref();
        asset_id: Option<&str> = |task| task.context.asset_id.as_deref();
        task_key: Option<&str> = |task| task.context.task_key.as_deref();
        resources: Option<&Json> = |task| task.context.resources.as_ref();
        /// What an earlier attempt had done when it failed, if its failure said so.
        partial_progress: Option<&Json> = |task| task.partial_progress.as_ref();
        /// Opaque. With the worker's id it gives the right to report on this attempt. For a pushed task it is the dispatch
        /// id, which gives no right.
        lease_id: &str = |task| &task.lease_id;
    }

    /// Parses the payload into a type. A payload that does not fit is a failure of category DATA_QUALITY.
    pub fn payload<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        let parsed = self.0.assignment.payload.read();
        parsed.map_err(|error| Failure::data_quality(format!("the payload is not as it should be: {error}")))
    }

    /// Whether the handler should stop: the task was canceled, the lease is lost, or the worker stops.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancellation.is_cancelled() || self.is_lease_lost()
    }

    /// Returns when the handler should stop.
    pub async fn cancelled(&self) {
        self.0.cancellation.cancelled().await;
    }

    /// A token that is canceled when the handler should stop.
    pub fn cancellation(&self) -> CancellationToken {
        self.0.cancellation.clone()
    }

    /// Why the handler should stop, once it should.
    pub fn cancel_reason(&self) -> Option<String> {
        let live = self.live();
        match (&live.reason, live.clock.is_over()) {
            (None, true) => Some("the lease ran out".to_owned()),
            (reason, _) => reason.clone(),
        }
    }

    /// Whether the right to report on this attempt is gone. From then on, do nothing in the task's name.
    pub fn is_lease_lost(&self) -> bool {
        let live = self.live();
        live.is_lost || live.clock.is_over()
    }

    /// Fails with CANCELLED if the handler should stop: `task.checkpoint()?`.
    pub fn checkpoint(&self) -> Result<(), Failure> {
        if self.is_cancelled() {
            Err(Failure::cancelled(self.cancel_reason().unwrap_or_else(|| "cancelled".to_owned())))
        } else {
            Ok(())
        }
    }

    /// Shows people the progress of the attempt, from 0 to 100; other values are clamped. It is sent with a heartbeat and
    /// decides nothing.
    pub fn progress(&self, pct: f64, message: impl Into<String>) {
        let pct = (!pct.is_nan()).then(|| pct.clamp(0.0, 100.0));
        self.live().progress = Some(Progress { pct, message: Some(truncate(message.into())) });
        self.0.progressed.notify_one();
    }

    /// Sets the metrics of the attempt, which are sent with the report of a pushed task. They are for people and decide
    /// nothing.
    pub fn metrics(&self, metrics: Metrics) {
        self.live().metrics = Some(metrics);
    }

    pub(crate) fn take_metrics(&self) -> Option<Metrics> {
        self.live().metrics.take()
    }

    pub(crate) fn cancel(&self, reason: impl Into<String>) {
        self.live().reason.get_or_insert_with(|| reason.into());
        self.0.cancellation.cancel();
    }

    pub(crate) fn lose(&self, reason: impl Into<String>) {
        self.live().is_lost = true;
        self.cancel(reason);
    }

    pub(crate) fn clock<T>(&self, of: impl FnOnce(&mut LeaseClock) -> T) -> T {
        of(&mut self.live().clock)
    }

    pub(crate) async fn progressed(&self) {
        self.0.progressed.notified().await;
    }

    pub(crate) fn take_progress(&self) -> Option<Progress> {
        self.live().progress.take()
    }

    /// Restores progress that was not sent; newer progress wins.
    pub(crate) fn restore_progress(&self, unsent: Option<Progress>) {
        let mut live = self.live();
        live.progress = live.progress.take().or(unsent);
    }

    pub(crate) fn heartbeat_interval(&self) -> Duration {
        self.0.assignment.heartbeat_interval
    }

    /// No holder of the lock panics, and the state would still be consistent.
    fn live(&self) -> MutexGuard<'_, Live> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
