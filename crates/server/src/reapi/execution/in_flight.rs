//! Tracks the executions in flight, so that equal executions are merged (R34, R35, R44).
//!
//! The table is kept in memory only. After a restart it is rebuilt from the ledger, before the first lookup for an
//! instance. Each execution is watched by one task, which removes it when it is over and its result is in the action cache,
//! and ends it when no worker could ever run it.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use authority::command::{AttachAnswer, AttachOperation, KillTask, SubmitAnswer, SubmitTask};
use authority::limits::MAX_PAGE;
use authority::{Phase, Position, Properties, QueueKey, Scope, Task, TaskId, TaskState, TaskView};
use backon::{BackoffBuilder, ExponentialBuilder};
use blobs::{Digest, DigestFunction};
use coordinator::{Handle, TaskDetail, Unavailable, WaitCondition};
use tokio::sync::watch;
use tokio::time::sleep;
use tonic::Status;

use super::no_worker_timer::NoWorkerTimer;
use super::pins::{PinGuard, Pins};
use super::platform;
use crate::convert::{Limit, Problem};
use crate::edge::limits::{InUse, LimitTable};
use crate::reapi::Instances;
use crate::reapi::results::Results;
use execution::{EXECUTION_QUEUE, ExecutionPayload};

/// Shortest and longest pause before an overloaded coordinator is asked again.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);
/// Number of locks that keep equal executions from starting twice; different executions seldom share one.
const DEDUP_LOCKS: usize = 256;

type Key = (Scope, Digest);

#[derive(Clone)]
pub(crate) struct InFlightExecutions(Arc<Inner>);

struct Inner {
    handle: Handle,
    pins: Pins,
    instances: Instances,
    results: Results,
    limits: Arc<LimitTable>,
    /// How long an execution may wait while no registered worker could run it.
    worker_grace: Duration,
    dedup_locks: Vec<tokio::sync::Mutex<()>>,
    hasher: RandomState,
    tasks: Mutex<HashMap<Key, TaskId>>,
    /// Every execution that is not over, also those that nobody may join.
    executions: Mutex<HashMap<TaskId, Execution>>,
    loaded: tokio::sync::Mutex<HashSet<Scope>>,
    /// The executions of all instances that were in flight before this process started are known.
    is_loaded: AtomicBool,
}

struct Execution {
    action: Digest,
    /// The lease whose completion was refused last, for lack of outputs or because it cannot be read.
    refused: Option<Position>,
}

impl InFlightExecutions {
    pub(crate) fn new(
        handle: Handle,
        pins: Pins,
        worker_grace: Duration,
        instances: Instances,
        results: Results,
        limits: Arc<LimitTable>,
    ) -> InFlightExecutions {
        InFlightExecutions(Arc::new(Inner {
            handle,
            pins,
            instances,
            results,
            limits,
            worker_grace,
            dedup_locks: (0..DEDUP_LOCKS).map(|_| tokio::sync::Mutex::default()).collect(),
            hasher: RandomState::new(),
            tasks: Mutex::default(),
            executions: Mutex::default(),
            loaded: tokio::sync::Mutex::default(),
            is_loaded: AtomicBool::new(false),
        }))
    }

    /// Held while an execution of an action is joined, submitted or canceled, so that equal executions are merged.
    pub(crate) async fn dedup_lock(&self, scope: &Scope, digest: &Digest) -> tokio::sync::MutexGuard<'_, ()> {
        let number = self.0.hasher.hash_one((scope, digest)) as usize % DEDUP_LOCKS;
        self.0.dedup_locks[number].lock().await
    }

    /// Attaches a new operation to an equal execution in flight, if there is one. `name` names the operation.
    pub(crate) async fn join(
        &self,
        scope: &Scope,
        digest: &Digest,
        name: impl Fn(TaskId) -> Result<Arc<str>, Status>,
    ) -> Result<Option<(TaskId, Arc<str>)>, Status> {
        self.load(scope).await?;
        let key = (scope.clone(), *digest);
        let Some(task) = self.tasks().get(&key).copied() else { return Ok(None) };
        let detail = self.0.handle.task(scope.clone(), task).await.map_err(Problem::from)?;
        let open = detail
            .as_ref()
            .is_some_and(|detail| !detail.view.task.is_final() && detail.view.task.cancel.is_none());
        if !open {
            if let Some(detail) = &detail {
                self.cache(scope, &detail.view.task).await;
            }
            self.forget(&key, task);
            return Ok(None);
        }
        let operation = name(task)?;
        let attach = AttachOperation { scope: scope.clone(), task, operation: operation.clone() };
        match self.0.handle.attach(attach).await.map_err(Problem::from)? {
            AttachAnswer::Done => Ok(Some((task, operation))),
            AttachAnswer::UnknownTask | AttachAnswer::TooMany => Ok(None),
        }
    }

    /// Attaches a new operation to an execution that was submitted through another node, if the execution is not over. If it
    /// is, its result is in the action cache afterwards.
    pub(crate) async fn join_existing(
        &self,
        task: &Task,
        operation: AttachOperation,
    ) -> Result<bool, Status> {
        if task.is_final() || task.cancel.is_some() {
            self.cache(&operation.scope, task).await;
            return Ok(false);
        }
        let answer = self.0.handle.attach(operation).await.map_err(Problem::from)?;
        Ok(answer == AttachAnswer::Done)
    }

    /// Submits an execution of an action. Later clients may join it if `may_join` says so.
    pub(crate) async fn begin(
        &self,
        submit: SubmitTask,
        action: &Digest,
        may_join: bool,
        held: Option<PinGuard>,
    ) -> Result<Submission, Status> {
        let id = submit.id;
        let (scope, properties) = (submit.queue.scope.clone(), submit.properties.clone());
        let in_use = self.0.limits.take(Limit::Executions, &scope.tenant)?;
        // First, because a worker may report before the answer is here.
        let entry = ExecutionEntry::new(self, submit.id, *action, in_use);
        let begun = Begun { digest: may_join.then_some(*action), entry, properties, held };
        let mut submitted = Submitted { in_flight: self.clone(), scope, begun: Some(begun) };
        let refused = match self.0.handle.submit(submit).await.map_err(Problem::from) {
            Ok(SubmitAnswer::Created(_)) => return Ok(Submission::Begun),
            Ok(SubmitAnswer::Existing(view)) if view.task.id == id => return Ok(Submission::Begun),
            Ok(SubmitAnswer::Existing(view)) => {
                let held = submitted.begun.take().and_then(|begun| begun.held);
                return Ok(Submission::Equal(view, held));
            }
            Ok(SubmitAnswer::DedupConflict(task)) if task == id => {
                Status::internal("the id of a new task was taken")
            }
            // A client has given the key to a task of its own.
            Ok(SubmitAnswer::DedupConflict(_)) => {
                let held = submitted.begun.take().and_then(|begun| begun.held);
                return Ok(Submission::KeyTaken(held));
            }
            Ok(SubmitAnswer::Refused(why)) => Problem::from(why).into(),
            // The task may exist nevertheless.
            Err(problem) => return Err(problem.into()),
        };
        submitted.begun = None;
        Err(refused)
    }

    fn keep(
        &self,
        scope: Scope,
        digest: Option<Digest>,
        entry: ExecutionEntry,
        properties: Arc<Properties>,
        held: impl Future<Output = Option<PinGuard>> + Send + 'static,
    ) {
        let task = entry.task;
        let key = digest.map(|digest| (scope.clone(), digest));
        if let Some(key) = &key {
            self.tasks().insert(key.clone(), task);
        }
        let in_flight = self.clone();
        tokio::spawn(async move {
            let _held = held.await;
            // Until its result is cached, an equal execution finds it here.
            if let Some(over) = in_flight.until_over(&scope, task, &properties).await {
                in_flight.cache(&scope, &over.view.task).await;
            }
            if let Some(key) = key {
                in_flight.forget(&key, task);
            }
            drop(entry);
        });
    }

    /// Writes the result of a completed execution to the action cache, which its projection may not have done yet.
    async fn cache(&self, scope: &Scope, over: &Task) {
        if let Err(why) = self.0.results.keep(scope, over).await {
            tracing::warn!(task = %over.id, why = why.message(), "a result is not in the action cache yet");
        }
    }

    /// The task once it is over; none when it is unknown or the coordinator stops.
    async fn until_over(
        &self,
        scope: &Scope,
        task: TaskId,
        required: &Properties,
    ) -> Option<Box<TaskDetail>> {
        let handle = &self.0.handle;
        let mut timer = NoWorkerTimer::new(self.0.worker_grace);
        let mut changes = handle.watch_workers();
        let pauses = ExponentialBuilder::new().without_max_times();
        let pauses = pauses.with_min_delay(MIN_PAUSE).with_max_delay(MAX_PAUSE);
        let mut pause = pauses.build();
        loop {
            let detail = match self.next_check(scope, task, required, &mut timer, &mut changes).await {
                Ok(Some(detail)) => detail,
                Ok(None) | Err(Unavailable::Stopped) => return None,
                // The task still exists, so its inputs stay pinned and others may join it.
                Err(_) => {
                    sleep(pause.next().unwrap_or(MAX_PAUSE)).await;
                    continue;
                }
            };
            pause = pauses.build();
            if detail.view.task.is_final() {
                return Some(detail);
            }
            let waits = matches!(detail.view.task.phase, Phase::Waiting { .. });
            let why = if waits { self.nobody_fits(scope, required).await } else { None };
            if timer.observe(why.is_some(), handle.now()) {
                let kill = KillTask { scope: scope.clone(), task, detail: why.map(Arc::from), by: None };
                let _ = handle.kill(kill).await;
                timer = NoWorkerTimer::new(self.0.worker_grace);
            }
        }
    }

    /// Waits until the task is over, or until the next check for a worker. A worker that registers meanwhile is noticed.
    async fn next_check(
        &self,
        scope: &Scope,
        task: TaskId,
        required: &Properties,
        timer: &mut NoWorkerTimer,
        changes: &mut watch::Receiver<()>,
    ) -> Result<Option<Box<TaskDetail>>, Unavailable> {
        let handle = &self.0.handle;
        let next_check = timer.next_check(handle.now());
        let mut wait = pin!(handle.wait_task(scope.clone(), task, WaitCondition::FinalForServer, next_check));
        loop {
            tokio::select! {
                detail = &mut wait => return detail,
                Ok(()) = changes.changed(), if timer.is_running() => {
                    timer.observe(self.nobody_fits(scope, required).await.is_some(), handle.now());
                }
            }
        }
    }

    /// Why no registered worker could run the execution; none if one could, or if nobody knows.
    async fn nobody_fits(&self, scope: &Scope, required: &Properties) -> Option<String> {
        let offered = self.0.handle.offered(scope).await.ok()?;
        let fits = offered.iter().any(|offered| required.satisfied_by(offered));
        (!fits).then(|| platform::explain(required, &offered))
    }

    /// Loads the executions of every instance that were in flight before this process started.
    pub(crate) async fn load_all(&self) -> Result<(), Status> {
        for scope in self.0.handle.scopes_with(Arc::from(EXECUTION_QUEUE)).await.map_err(Problem::from)? {
            self.load(&scope).await?;
        }
        self.0.is_loaded.store(true, Ordering::Release);
        Ok(())
    }

    /// Whether nothing is in flight, as far as this process knows by now.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_loaded() && self.executions().is_empty()
    }

    /// Whether what was in flight before this process started is known.
    pub(crate) fn is_loaded(&self) -> bool {
        self.0.is_loaded.load(Ordering::Acquire)
    }

    /// The action of an execution in flight.
    pub(crate) fn action_of(&self, task: TaskId) -> Option<Digest> {
        self.executions().get(&task).map(|execution| execution.action)
    }

    /// The digest function of an execution in flight: of its action, and so of its outputs.
    pub(super) fn function_of(&self, task: TaskId) -> Option<DigestFunction> {
        self.action_of(task).map(|action| action.function)
    }

    /// Notes that a completion under this lease was refused.
    pub(super) fn set_refused(&self, task: TaskId, lease: Position) {
        if let Some(execution) = self.executions().get_mut(&task) {
            execution.refused = Some(lease);
        }
    }

    /// Notes that a completion under this lease has its outputs. A late report under an earlier lease says nothing about
    /// the lease whose completion was refused.
    pub(super) fn set_accepted(&self, task: TaskId, lease: Position) {
        if let Some(execution) = self.executions().get_mut(&task)
            && execution.refused == Some(lease)
        {
            execution.refused = None;
        }
    }

    /// Whether the last completion under this lease was refused without a verdict.
    pub(crate) fn is_refused(&self, task: TaskId, lease: Position) -> bool {
        self.executions().get(&task).is_some_and(|execution| execution.refused == Some(lease))
    }

    pub(crate) async fn load(&self, scope: &Scope) -> Result<(), Status> {
        let mut loaded = self.0.loaded.lock().await;
        let queue = QueueKey { scope: scope.clone(), name: Arc::from(EXECUTION_QUEUE) };
        // An instance without executions is not remembered, because a client may send any name.
        if loaded.contains(scope) || self.0.handle.queue(queue).await.map_err(Problem::from)?.is_none() {
            return Ok(());
        }
        for state in [TaskState::Waiting, TaskState::Leased] {
            let mut after = None;
            loop {
                let queue = Some(Arc::from(EXECUTION_QUEUE));
                let page = self.0.handle.list(scope.clone(), queue, Some(state), after, MAX_PAGE).await;
                let page = page.map_err(Problem::from)?;
                for view in &page.tasks {
                    let payload = ExecutionPayload::decode(&view.task.payload)
                        .ok()
                        .filter(|_| !view.task.operations.is_empty());
                    let Some(payload) = payload else { continue };
                    let Ok(action) = payload.action() else { continue };
                    if self.function_of(view.task.id).is_some() {
                        continue;
                    }
                    let is_taken = self.tasks().contains_key(&(scope.clone(), action));
                    let digest = (!payload.do_not_cache && !is_taken).then_some(action);
                    let (pins, of) = (self.0.pins.clone(), scope.clone());
                    let held = async move { pins.again(&of, &action).await };
                    let in_use = self.0.limits.count(Limit::Executions, &scope.tenant);
                    let entry = ExecutionEntry::new(self, view.task.id, action, in_use);
                    self.keep(scope.clone(), digest, entry, view.task.properties.clone(), held);
                    self.0.instances.announce(scope);
                }
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        loaded.insert(scope.clone());
        Ok(())
    }

    fn forget(&self, key: &Key, task: TaskId) {
        let mut tasks = self.tasks();
        if tasks.get(key) == Some(&task) {
            tasks.remove(key);
        }
    }

    fn executions(&self) -> MutexGuard<'_, HashMap<TaskId, Execution>> {
        self.0.executions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<Key, TaskId>> {
        // Every change is one insertion or removal, so the map is consistent even after a panic.
        self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The action of a task that is an execution. A task that somebody submitted to its queue is none, whatever its payload.
pub(crate) fn action_of(view: &TaskView) -> Option<Digest> {
    let is_execution = *view.queue.name == *EXECUTION_QUEUE && !view.task.operations.is_empty();
    ExecutionPayload::decode(&view.task.payload).ok().filter(|_| is_execution)?.action().ok()
}

/// An execution in the table, until it is dropped.
struct ExecutionEntry {
    in_flight: InFlightExecutions,
    task: TaskId,
    /// It counts for its tenant, if executions of the tenant are limited.
    _in_use: Option<InUse>,
}

impl ExecutionEntry {
    fn new(
        in_flight: &InFlightExecutions,
        task: TaskId,
        action: Digest,
        in_use: Option<InUse>,
    ) -> ExecutionEntry {
        in_flight.executions().insert(task, Execution { action, refused: None });
        ExecutionEntry { in_flight: in_flight.clone(), task, _in_use: in_use }
    }
}

impl Drop for ExecutionEntry {
    fn drop(&mut self) {
        self.in_flight.executions().remove(&self.task);
    }
}

/// What became of an execution that was submitted.
pub(crate) enum Submission {
    Begun,
    /// The key of the execution belongs to this one; the inputs are still pinned.
    Equal(Box<TaskView>, Option<PinGuard>),
    KeyTaken(Option<PinGuard>),
}

/// What is kept of an execution that was submitted.
struct Begun {
    digest: Option<Digest>,
    entry: ExecutionEntry,
    properties: Arc<Properties>,
    held: Option<PinGuard>,
}

/// A submitted execution. It is kept also when its client hangs up before the answer is here, because a worker may run it.
struct Submitted {
    in_flight: InFlightExecutions,
    scope: Scope,
    begun: Option<Begun>,
}

impl Drop for Submitted {
    fn drop(&mut self) {
        let is_running = tokio::runtime::Handle::try_current().is_ok();
        let Some(Begun { digest, entry, properties, held }) = self.begun.take().filter(|_| is_running) else {
            return;
        };
        self.in_flight.0.instances.announce(&self.scope);
        self.in_flight.keep(self.scope.clone(), digest, entry, properties, async move { held });
    }
}
