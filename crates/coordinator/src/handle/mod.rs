//! The handle by which the rest of the program calls the coordinator: a cheap clone with one method for each request.
//!
//! The coordinator is that of this process ([`local`]) or, in a cluster, whichever node owns the ledger ([`front`]); callers
//! need not know. An answer comes only after everything it rests on is durable.

mod call;
mod configuration;
mod follower_clock;
mod front;
mod local;
mod peer;
mod repeat;
mod route;

pub use call::{Call, CallReply, RegistryCall, RegistryReply};
pub use configuration::ConfigurationFollower;
pub use front::{DEFAULT_FAILOVER_WAIT, EARLY_MS};
pub(crate) use local::{Envelope, INBOX_KIB, Local, WAITING_KIB};
pub use peer::{BoxFuture, NodeAddress, Notice, NoticeSource, Notices, OwnerHint, Peer, PeerError};
pub use repeat::answer_to_repeat;
pub use route::{Inbound, Router, RouterOptions};

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use authority::command::*;
use authority::{
    Answer, Command, HeldLease, LeaseRef, ListPage, Position, Properties, PushTarget, QueueKey, QueueView,
    Scope, StoredKey, TaskId, TaskState, Time, TokenKey, command_table,
};
use smallvec::smallvec;
use tokio::sync::watch;

use crate::engine::{
    ChargeUpload, FindHeld, HeldLeases, LeaseKey, Liveness, Registered, Registration, Registry, UploadCharge,
    WorkerStatus,
};
use crate::history::{History, HistoryError};
use crate::metrics::Metrics;
use crate::purged::PurgedTask;
use crate::request::{
    Answers, Batch, BatchItem, Depth, OrderRefusal, OrderWorker, Progress, Read, Reply, Request, Status,
    TaskDetail, TenantStatus, TenantWorker, Unavailable, WaitCondition, WorkerView,
};
use front::Front;

#[derive(Clone)]
pub struct Handle {
    target: Target,
    consistency: Consistency,
}

/// How new the state must be that a read of tasks and queues rests on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// The newest, confirmed by the owner.
    #[default]
    Strong,
    /// What this node has, if that reaches up to this position. A node that does not follow the ledger asks the owner.
    Stale { min: Position },
}

/// Who answers.
#[derive(Clone)]
enum Target {
    /// The coordinator of this process, always.
    Local(Arc<Local>),
    /// Whoever owns the ledger.
    Front(Arc<Front>),
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

/// One method for each call of the registry that has an answer.
macro_rules! registry_calls {
    ($($(#[$doc:meta])* $method:ident($($name:ident: $type:ty),*) => $call:expr => $reply:ident($answer:ty);)*) => {
        $($(#[$doc])*
        pub async fn $method(&self, $($name: $type),*) -> Result<$answer, Unavailable> {
            match self.registry_call($call).await? {
                RegistryReply::$reply(answer) => Ok(answer),
                reply => Err(unexpected(reply)),
            }
        })*
    };
}

impl Handle {
    pub(crate) fn of(local: Local) -> Handle {
        Handle { target: Target::Local(Arc::new(local)), consistency: Consistency::Strong }
    }

    /// The coordinator's time, which never goes back. In a cluster, the owner's time as far as this node knows it.
    pub fn now(&self) -> Time {
        match &self.target {
            Target::Local(local) => local.now(),
            Target::Front(front) => front.now(),
        }
    }

    /// The registry of the coordinator of this process; none in a cluster.
    pub fn local_registry(&self) -> Option<&Registry> {
        match &self.target {
            Target::Local(local) => Some(&local.registry),
            Target::Front(_) => None,
        }
    }

    /// The metrics of the writer of this process since it began.
    pub fn metrics(&self) -> &Metrics {
        match &self.target {
            Target::Local(local) => &local.metrics,
            Target::Front(front) => &front.metrics,
        }
    }

    /// Watches whether new work can be recorded: the disk has space and does not stand still. Closed once the
    /// coordinator has stopped.
    pub fn takes_work(&self) -> watch::Receiver<bool> {
        match &self.target {
            Target::Local(local) => local.takes_work.clone(),
            Target::Front(front) => front.notices.0.takes_work.subscribe(),
        }
    }

    /// A handle whose reads of tasks and queues have this consistency.
    pub fn with_consistency(&self, consistency: Consistency) -> Handle {
        Handle { target: self.target.clone(), consistency }
    }

    /// A position at or after everything that this node has answered so far.
    pub fn position(&self) -> Position {
        match &self.target {
            Target::Local(_) => self.durable(),
            Target::Front(front) => front.position(),
        }
    }

    /// The newest position that is known to be durable.
    pub fn durable(&self) -> Position {
        match &self.target {
            Target::Local(local) => *local.durable.borrow(),
            Target::Front(front) => front.durable(),
        }
    }

    /// Whether requests are taken.
    pub fn is_serving(&self) -> bool {
        match &self.target {
            Target::Local(local) => !local.inbox.is_closed(),
            Target::Front(front) => front.routes.has_changed().is_ok(),
        }
    }

    /// Watches workers that register and unregister. Timeouts do not show here, but in [`Handle::registered_for`].
    pub fn watch_workers(&self) -> watch::Receiver<()> {
        match &self.target {
            Target::Local(local) => local.registry.watch(),
            Target::Front(front) => front.notices.0.registered.subscribe(),
        }
    }

    /// Watches the orders of the operator.
    pub fn watch_orders(&self) -> watch::Receiver<()> {
        match &self.target {
            Target::Local(local) => local.registry.watch_orders(),
            Target::Front(front) => front.notices.0.ordered.subscribe(),
        }
    }

    /// Follows the keys, token keys and queues that any node changes: changes of keys are answered when all followers have
    /// them. None where there are no other nodes.
    pub fn follow_configuration(&self) -> Option<ConfigurationFollower> {
        match &self.target {
            Target::Local(_) => None,
            Target::Front(front) => Some(ConfigurationFollower::up_to_date(front.notices.0.clone())),
        }
    }

    /// Whether other nodes may serve the same ledger.
    pub fn has_other_nodes(&self) -> bool {
        matches!(self.target, Target::Front(_))
    }

    /// The epoch of the owner, as far as this node knows; it rises when another owner takes over, which knows no worker.
    /// Always zero without other nodes.
    pub fn epoch(&self) -> u64 {
        match &self.target {
            Target::Local(_) => 0,
            Target::Front(front) => front.routes.borrow().epoch,
        }
    }

    /// Resolves once this process owns the ledger.
    pub async fn owned(&self) {
        self.owned_is(true).await;
    }

    /// Resolves once this process does not own the ledger.
    pub async fn disowned(&self) {
        self.owned_is(false).await;
    }

    async fn owned_is(&self, owned: bool) {
        match &self.target {
            Target::Local(_) if owned => {}
            Target::Local(_) => std::future::pending().await,
            Target::Front(front) => {
                let mut routes = front.routes.clone();
                let is_local = |route: &route::Route| matches!(route.to, route::To::Local(_));
                if routes.wait_for(|route| is_local(route) == owned).await.is_err() && owned {
                    std::future::pending().await
                }
            }
        }
    }

    /// How long a worker may be silent before it is registered no more.
    pub fn set_heartbeat_timeout(&self, timeout: Duration) {
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        match &self.target {
            Target::Local(local) => local.registry.set_heartbeat_timeout_ms(timeout_ms),
            Target::Front(front) => front.set_heartbeat_timeout_ms(timeout_ms),
        }
    }

    pub fn heartbeat_timeout_ms(&self) -> u64 {
        match &self.target {
            Target::Local(local) => local.registry.heartbeat_timeout_ms(),
            Target::Front(front) => front.heartbeat_timeout_ms.load(Ordering::Relaxed),
        }
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
        /// Which leases a worker identity holds, as far as nodes have told the owner.
        held(asked: FindHeld) => Request::Read(Read::Held(Box::new(asked))) => Held(Box<HeldLeases>);
        /// Counts an upload for a lease that a worker identity holds.
        charge_upload(asked: ChargeUpload) => Request::Read(Read::ChargeUpload(asked)) => UploadCharged(UploadCharge);
        list(
            scope: Scope,
            queue: Option<Arc<str>>,
            state: Option<TaskState>,
            after: Option<(Arc<str>, Position)>,
            limit: usize
        ) => Request::Read(Read::List { scope, queue, state, after, limit }) => List(ListPage);
    }

    registry_calls! {
        /// Makes a worker known. Says whether the worker has started anew, as far as can be seen without a session.
        register(scope: &Scope, worker: &Arc<str>, registration: Registration)
            => RegistryCall::Register { scope: scope.clone(), worker: worker.clone(), registration } => Started(bool);
        /// The worker's registration, if it has one that has not timed out.
        registered(scope: &Scope, worker: &Arc<str>)
            => RegistryCall::Registered { scope: scope.clone(), worker: worker.clone() } => Registered(Option<Registered>);
        /// The live registrations of a worker, in all workspaces of its tenant.
        registrations(tenant: &Arc<str>, worker: &Arc<str>)
            => RegistryCall::Registrations { tenant: tenant.clone(), worker: worker.clone() }
            => Registrations(Vec<Arc<Registration>>);
        /// Records the status that a registered worker reports.
        record_status(scope: &Scope, worker: &Arc<str>, session: Option<&Arc<str>>, status: WorkerStatus)
            => RegistryCall::RecordStatus {
                scope: scope.clone(), worker: worker.clone(), session: session.cloned(), status
            } => Liveness(Liveness);
        /// The properties that the registered workers of a scope offer.
        offered(scope: &Scope) => RegistryCall::Offered { scope: scope.clone() } => Offered(Vec<Arc<Properties>>);
        /// How many workers are registered, over all scopes.
        registered_count() => RegistryCall::Count { tenant: None } => Count(u64);
        /// How many workers of a tenant are registered, in all its workspaces.
        registered_in_tenant(tenant: &Arc<str>)
            => RegistryCall::Count { tenant: Some(tenant.clone()) } => Count(u64);
        /// For how many more milliseconds some worker stays registered even if none is seen again; none when no worker is
        /// registered.
        registered_for_ms() => RegistryCall::RegisteredFor => RegisteredForMs(Option<u64>);
        /// Those of the leases whose last completion was refused without a verdict, as nodes have told the owner.
        refused(leases: Vec<LeaseKey>) => RegistryCall::Refused { leases } => Refused(Vec<LeaseKey>);
    }

    /// Records that a worker was seen.
    pub async fn record_heartbeat(&self, scope: &Scope, worker: &Arc<str>) -> Result<(), Unavailable> {
        let (scope, worker) = (scope.clone(), worker.clone());
        self.registry_call(RegistryCall::RecordHeartbeat { scope, worker }).await.map(drop)
    }

    /// Tells the owner that an identity holds leases; none is one that reads all of its tenant.
    pub async fn note_leases(
        &self,
        identity: Option<Arc<str>>,
        leases: Vec<LeaseRef>,
    ) -> Result<(), Unavailable> {
        self.registry_call(RegistryCall::NoteLeases { identity, leases }).await.map(drop)
    }

    /// Takes back what an upload that came to nothing was counted for.
    pub async fn refund_upload(&self, lease: LeaseKey, bytes: u64) -> Result<(), Unavailable> {
        self.registry_call(RegistryCall::RefundUpload { lease, bytes }).await.map(drop)
    }

    /// Tells the owner whether the last completion under a lease was refused without a verdict.
    pub async fn set_refused(&self, lease: LeaseRef, is_refused: bool) -> Result<(), Unavailable> {
        self.registry_call(RegistryCall::SetRefused { lease, is_refused }).await.map(drop)
    }

    /// Ends a registration, unless another session of the worker than the one named has registered since.
    pub async fn unregister(
        &self,
        scope: &Scope,
        worker: &Arc<str>,
        session: Option<&Arc<str>>,
    ) -> Result<(), Unavailable> {
        let (scope, worker, session) = (scope.clone(), worker.clone(), session.cloned());
        self.registry_call(RegistryCall::Unregister { scope, worker, session }).await.map(drop)
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
        match &self.target {
            Target::Local(local) => local.history(scope, task).await,
            Target::Front(front) => match front.call(Call::History { scope, task }).await? {
                CallReply::History(history) => Ok(history),
                reply => Err(no_history(reply)),
            },
        }
    }

    /// How a task ended that was purged, from the records that the ledger still has. None when they tell of no such task
    /// in this scope.
    pub async fn purged_task(&self, scope: Scope, task: TaskId) -> Result<Option<PurgedTask>, HistoryError> {
        match &self.target {
            Target::Local(local) => local.purged_task(scope, task).await,
            Target::Front(front) => match front.call(Call::PurgedTask { scope, task }).await? {
                CallReply::PurgedTask(purged) => Ok(purged),
                reply => Err(no_history(reply)),
            },
        }
    }

    async fn ask(&self, request: Request) -> Result<Reply, Unavailable> {
        match &self.target {
            Target::Local(local) => local.ask(request).await,
            Target::Front(front) => {
                if let (Consistency::Stale { min }, Request::Read(read)) = (self.consistency, &request)
                    && let Some(reply) = front.read_stale(read, min).await
                {
                    return Ok(reply);
                }
                match front.call(Call::Ask(request)).await? {
                    CallReply::Asked(Reply::Unavailable(why)) => Err(why),
                    CallReply::Asked(reply) => Ok(reply),
                    reply => Err(unexpected(reply)),
                }
            }
        }
    }

    /// In this process the registry is called at once; nothing in it is a decision.
    async fn registry_call(&self, call: RegistryCall) -> Result<RegistryReply, Unavailable> {
        match &self.target {
            Target::Local(local) => Ok(local.registry_call(call)),
            Target::Front(front) => match front.call(Call::Registry(call)).await? {
                CallReply::Registry(reply) => Ok(reply),
                CallReply::Asked(Reply::Unavailable(why)) => Err(why),
                reply => Err(unexpected(reply)),
            },
        }
    }

    async fn decide_one(&self, item: BatchItem) -> Result<Answer, Unavailable> {
        let mut answers = self.decide(smallvec![item]).await?;
        answers.pop().ok_or_else(|| unexpected(answers))
    }
}

fn no_history(reply: CallReply) -> HistoryError {
    match reply {
        CallReply::LedgerError(what) => HistoryError::Ledger(what),
        CallReply::Asked(Reply::Unavailable(why)) => HistoryError::Unavailable(why),
        reply => HistoryError::Unavailable(unexpected(reply)),
    }
}

/// The engine answers each request with its own kind of reply; anything else is a bug in it.
fn unexpected(reply: impl fmt::Debug) -> Unavailable {
    tracing::error!(?reply, "the coordinator gave an answer of the wrong kind");
    Unavailable::OutcomeUnknown
}

#[cfg(test)]
mod tests;
