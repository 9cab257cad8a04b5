//! The handle by which the rest of the program calls the coordinator: a cheap clone with one method for each request.
//!
//! A request is stamped with its time of receipt here and waits for capacity in the bounded inbox. Its answer comes only
//! after everything it rests on is durable.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use authority::command::*;
use authority::{
    Answer, Command, HeldLease, ListPage, Position, PushTarget, QueueKey, QueueView, Scope, StoredKey,
    TaskId, TaskState, Time, TokenKey, command_table,
};
use smallvec::smallvec;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::clock::Clock;
use crate::engine::Registry;
use crate::history::{History, HistoryError, HistoryReader};
use crate::metrics::Metrics;
use crate::purged::{PurgedTask, PurgedTasks};
use crate::request::{
    Answers, Batch, BatchItem, Depth, OrderRefusal, OrderWorker, Progress, Read, Reply, Request, Status,
    TaskDetail, TenantStatus, TenantWorker, Unavailable, WaitCondition, WorkerView,
};
use crate::waiting::{Waiting, WaitingGuard};

/// The longest wait for capacity in the inbox before a request is refused.
const MAX_INBOX_WAIT: Duration = Duration::from_secs(10);

/// Memory for the payloads, results and texts of requests that wait to be decided, in KiB.
pub(crate) const INBOX_KIB: usize = 256 << 10;
/// Memory for requests that wait for that memory, in KiB. A request that finds none here either is refused at once.
pub(crate) const WAITING_KIB: usize = 64 << 10;

/// A request on its way, with the time at which it was received.
pub(crate) struct Envelope {
    pub request: Request,
    pub received_at: Time,
    pub reply_to: oneshot::Sender<Reply>,
    /// A permit for the memory of the request, released when the request is decided.
    pub permit: Option<OwnedSemaphorePermit>,
    /// Marks a request that had to wait, until it is decided.
    pub waiting_guard: Option<WaitingGuard>,
}

#[derive(Clone)]
pub struct Handle {
    pub(crate) inbox: mpsc::Sender<Envelope>,
    pub(crate) inbox_kib: Arc<Semaphore>,
    pub(crate) waiting_kib: Arc<Semaphore>,
    pub(crate) clock: Arc<Clock>,
    /// Requests that were stamped and had to wait for capacity; a tick must not overtake them.
    pub(crate) waiting: Waiting,
    pub(crate) history: Arc<dyn HistoryReader>,
    pub(crate) purged: PurgedTasks,
    pub(crate) registry: Arc<Registry>,
    pub(crate) metrics: Metrics,
    pub(crate) takes_work: watch::Receiver<bool>,
    pub(crate) durable: watch::Receiver<Position>,
}

/// One method for each command that callers send.
macro_rules! calls {
    ($($Name:ident($payload:ty) => $answer:ident($type:ty) $(, $(#[$doc:meta])* call $call:ident)?;)*) => {
        $($($(#[$doc])*
        pub async fn $call(&self, command: $Name) -> Result<$type, Unavailable> {
            match self.decide_one(BatchItem::Command(Command::$Name(command.into()))).await? {
                Answer::$answer(answer) => Ok(answer),
                answer => Err(unexpected(answer)),
            }
        })?)*
    };
}

/// One method for each read.
macro_rules! reads {
    ($($(#[$doc:meta])* $method:ident($($name:ident: $type:ty),*) => $read:expr => $reply:ident($answer:ty);)*) => {
        $($(#[$doc])*
        pub async fn $method(&self, $($name: $type),*) -> Result<$answer, Unavailable> {
            match self.ask($read).await? {
                Reply::$reply(answer) => Ok(answer),
                reply => Err(unexpected(reply)),
            }
        })*
    };
}

impl Handle {
    /// The coordinator's time, which never goes back.
    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// The workers that were seen or are registered. Soft state, so it is read and written at once.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The metrics of the writer since it began.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Watches whether new work can be recorded: the disk has space and does not stand still. Closed once the
    /// coordinator has stopped.
    pub fn takes_work(&self) -> watch::Receiver<bool> {
        self.takes_work.clone()
    }

    /// The newest position that is durable.
    pub fn durable(&self) -> Position {
        *self.durable.borrow()
    }

    /// Whether requests are taken.
    pub fn is_serving(&self) -> bool {
        !self.inbox.is_closed()
    }

    command_table!(calls);

    reads! {
        task(scope: Scope, task: TaskId) => Request::Read(Read::Task { scope, task }) => Task(Option<Box<TaskDetail>>);
        queue(key: QueueKey) => Request::Read(Read::Queue(key)) => Queue(Option<Box<QueueView>>);
        queues(scope: Scope) => Request::Read(Read::Queues(scope)) => Queues(Vec<QueueView>);
        workers(scope: Scope) => Request::Read(Read::Workers(scope)) => Workers(Vec<WorkerView>);
        /// Decides the items in order, each on its own; each has its answer.
        decide(batch: Batch) => Request::Decide(batch) => Decided(Answers);
        /// What a worker holds.
        leases(scope: Scope, worker: Arc<str>) => Request::Read(Read::Leases { scope, worker }) => Leases(Vec<HeldLease>);
        /// What a worker holds, in all workspaces of its tenant.
        tenant_leases(tenant: Arc<str>, worker: Arc<str>) => Request::Read(Read::TenantLeases { tenant, worker }) => Leases(Vec<HeldLease>);
        /// A worker in all workspaces of its tenant; none if it is unknown.
        worker(tenant: Arc<str>, worker: Arc<str>) => Request::Read(Read::Worker { tenant, worker }) => Worker(Option<Box<TenantWorker>>);
        /// Carries out an order of the operator. After the answer to a drain, the worker is granted nothing.
        order(order: OrderWorker) => Request::Order(order) => Ordered(Result<(), OrderRefusal>);
        /// The scopes that have a queue of this name.
        scopes_with(queue: Arc<str>) => Request::Read(Read::ScopesWith(queue)) => ScopesWith(Vec<Scope>);
        /// The queues whose tasks are pushed, over all scopes.
        push_targets() => Request::Read(Read::PushTargets) => PushTargets(Vec<(Arc<QueueKey>, Arc<PushTarget>)>);
        token_key() => Request::Read(Read::TokenKey) => TokenKey(Option<TokenKey>);
        /// The API keys that live, by id.
        keys() => Request::Read(Read::Keys) => Keys(Vec<StoredKey>);
        status() => Request::Read(Read::Status) => Status(Status);
        /// How much waits and runs: in the queues of these names over all scopes, and in all others together.
        depths(names: Arc<[String]>) => Request::Read(Read::Depths(names)) => Depths(Vec<Depth>);
        /// What a tenant uses, and how much waits and runs: in its queues of these names, and in all others together.
        tenant(tenant: Arc<str>, names: Arc<[String]>) => Request::Read(Read::Tenant { tenant, names }) => Tenant(Box<TenantStatus>);
        list(
            scope: Scope,
            queue: Option<Arc<str>>,
            state: Option<TaskState>,
            after: Option<(Arc<str>, Position)>,
            limit: usize
        ) => Request::Read(Read::List { scope, queue, state, after, limit }) => List(ListPage);
    }

    /// Leases tasks, waiting up to `wait` for one to come. When the future was dropped before its answer was sent, the
    /// leases are given back, unless the poll has a request digest by which it can be repeated; an answer that was sent
    /// and never read is not noticed, and its leases expire.
    pub async fn lease(&self, lease: LeaseTasks, wait: Duration) -> Result<Vec<Grant>, Unavailable> {
        let until = self.now().plus_ms(wait.as_millis() as u64);
        match self.ask(Request::Poll { lease, until }).await? {
            Reply::Leased(grants) => Ok(grants),
            reply => Err(unexpected(reply)),
        }
    }

    pub async fn heartbeat(
        &self,
        extend: ExtendLease,
        progress: Option<Progress>,
    ) -> Result<ExtendAnswer, Unavailable> {
        match self.decide_one(BatchItem::Heartbeat { extend, progress }).await? {
            Answer::Extended(answer) => Ok(answer),
            answer => Err(unexpected(answer)),
        }
    }

    /// Submits tasks in one go; each has its answer.
    pub async fn submit_batch(&self, tasks: Vec<SubmitTask>) -> Result<Vec<SubmitAnswer>, Unavailable> {
        let submit = |task| BatchItem::Command(Command::SubmitTask(Box::new(task)));
        let answers = self.decide(tasks.into_iter().map(submit).collect()).await?;
        let submitted = |answer| match answer {
            Answer::Submitted(answer) => Ok(answer),
            answer => Err(unexpected(answer)),
        };
        answers.into_iter().map(submitted).collect()
    }

    /// The task once it meets the condition, or as it is after `wait`.
    pub async fn wait_task(
        &self,
        scope: Scope,
        task: TaskId,
        condition: WaitCondition,
        wait: Duration,
    ) -> Result<Option<Box<TaskDetail>>, Unavailable> {
        let until = self.now().plus_ms(wait.as_millis() as u64);
        match self.ask(Request::Wait { scope, task, condition, until }).await? {
            Reply::Task(task) => Ok(task),
            reply => Err(unexpected(reply)),
        }
    }

    /// Every record of a task, oldest first, as far back as history is kept. None when there is no such task.
    pub async fn history(&self, scope: Scope, task: TaskId) -> Result<Option<History>, HistoryError> {
        let Some(detail) = self.task(scope, task).await? else { return Ok(None) };
        let reader = self.history.clone();
        let last = detail.view.task.last;
        tokio::task::spawn_blocking(move || reader.history(last).map(Some))
            .await
            .map_err(|_| HistoryError::Unavailable(Unavailable::Stopped))?
    }

    /// How a task ended that was purged, from the records that the ledger still has. None when they tell of no such task
    /// in this scope.
    pub async fn purged_task(&self, scope: Scope, task: TaskId) -> Result<Option<PurgedTask>, HistoryError> {
        self.purged.find(scope, task, self.now()).await
    }

    async fn decide_one(&self, item: BatchItem) -> Result<Answer, Unavailable> {
        let mut answers = self.decide(smallvec![item]).await?;
        answers.pop().ok_or_else(|| unexpected(answers))
    }

    async fn ask(&self, request: Request) -> Result<Reply, Unavailable> {
        let (reply_to, reply) = oneshot::channel();
        let mut envelope =
            Envelope { request, received_at: self.now(), reply_to, permit: None, waiting_guard: None };
        let kib = envelope.request.bytes().div_ceil(1_024).min(INBOX_KIB) as u32;
        if kib > 0 {
            envelope.permit = self.inbox_kib.clone().try_acquire_many_owned(kib).ok();
        }
        if kib > 0 && envelope.permit.is_none() {
            let held = self.waiting_kib.try_acquire_many(kib.min(WAITING_KIB as u32));
            let _held = held.map_err(|_| Unavailable::Overloaded)?;
            self.wait_for_capacity(envelope, kib).await?;
        } else if let Err(refused) = self.inbox.try_send(envelope) {
            match refused {
                mpsc::error::TrySendError::Closed(_) => return Err(Unavailable::Stopped),
                mpsc::error::TrySendError::Full(envelope) => self.wait_for_capacity(envelope, 0).await?,
            }
        }
        match reply.await {
            Ok(Reply::Unavailable(why)) => Err(why),
            Ok(reply) => Ok(reply),
            Err(_) => Err(Unavailable::OutcomeUnknown),
        }
    }

    async fn wait_for_capacity(&self, mut envelope: Envelope, kib: u32) -> Result<(), Unavailable> {
        envelope.waiting_guard = Some(self.waiting.enter(envelope.received_at));
        let sent = async {
            if kib > 0 {
                envelope.permit = self.inbox_kib.clone().acquire_many_owned(kib).await.ok();
            }
            self.inbox.send(envelope).await.map_err(|_| Unavailable::Stopped)
        };
        timeout(MAX_INBOX_WAIT, sent).await.unwrap_or(Err(Unavailable::Overloaded))
    }
}

/// The engine answers each request with its own kind of reply; anything else is a bug in it.
fn unexpected(reply: impl fmt::Debug) -> Unavailable {
    tracing::error!(?reply, "the coordinator gave an answer of the wrong kind");
    Unavailable::OutcomeUnknown
}

#[cfg(test)]
mod tests {
    use authority::{Digest, Outcome, Properties, TaskOptions};

    use super::*;

    /// Small requests overtake a large one that waits for capacity, and must not let time pass for it.
    #[tokio::test]
    async fn a_report_that_came_in_time_and_waits_for_capacity_does_not_lose_its_lease() {
        let storage = ledger::memory::MemoryStorage::default().open();
        let running = crate::start(storage, crate::Options::default()).unwrap();
        let handle = &running.handle;
        let worker: Arc<str> = Arc::from("w");
        // Until a report is begun in time, which it is at once unless the machine stood still.
        for id in 1.. {
            handle.submit(task(id)).await.unwrap();
            let grant = handle.lease(poll(&worker), Duration::ZERO).await.unwrap().remove(0);
            let lease = grant.lease_ref();
            let all_permits = handle.inbox_kib.clone().acquire_many_owned(INBOX_KIB as u32).await.unwrap();
            let result = Arc::from(&b"1"[..]);
            let report =
                handle.complete(ReportCompletion { lease, digest: Digest([7; 16]), result, details: None });
            let mut report = std::pin::pin!(report);
            tokio::select! {
                biased;
                answer = &mut report => panic!("it has no permit: {answer:?}"),
                () = std::future::ready(()) => {}
            }
            if handle.now() >= grant.expires_at {
                continue;
            }
            while handle.now() <= grant.expires_at {
                handle.status().await.unwrap();
            }
            // What came after the lease's end is answered, and so is all that follows from it decided.
            handle.status().await.unwrap();
            drop(all_permits);
            assert_eq!(report.await, Ok(Verdict::Committed(Outcome::Completed)));
            break;
        }
        running.stop().await.unwrap();
    }

    fn scope() -> Scope {
        Scope { tenant: Arc::from("t"), workspace: Arc::from("w") }
    }

    fn task(id: u128) -> SubmitTask {
        SubmitTask {
            id: TaskId(id),
            queue: Arc::new(QueueKey { scope: scope(), name: Arc::from("q") }),
            payload: Arc::from(&b""[..]),
            priority: 0,
            delay_ms: 0,
            properties: Arc::new(Properties::default()),
            options: Some(Arc::new(TaskOptions { lease_ms: Some(500), ..TaskOptions::default() })),
            operation: None,
        }
    }

    fn poll(worker: &Arc<str>) -> LeaseTasks {
        LeaseTasks {
            scope: scope(),
            worker: worker.clone(),
            session: None,
            queues: vec![Arc::from("q")],
            properties: Arc::new(Properties::default()),
            max_tasks: 1,
            request: None,
            contract: authority::Contract::Leases,
        }
    }
}
