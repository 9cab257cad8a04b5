//! The coordinator of this process, called directly: a request is stamped with its time of receipt and waits for capacity
//! in the bounded inbox of the driver.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use authority::{Position, Scope, TaskId, Time};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::timeout;

use super::call::{Call, CallReply, RegistryCall, RegistryReply};
use crate::clock::Clock;
use crate::engine::Registry;
use crate::history::{History, HistoryError, HistoryReader};
use crate::metrics::Metrics;
use crate::purged::{PurgedTask, PurgedTasks};
use crate::request::{Read, Reply, Request, Unavailable};
use crate::waiting::{Waiting, WaitingGuard};

/// The longest wait for capacity in the inbox before a request is refused.
pub(super) const MAX_INBOX_WAIT: Duration = Duration::from_secs(10);

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

/// The coordinator of this process, as its callers reach it.
pub(crate) struct Local {
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
    /// Set while nothing can be answered because no standby receives what is recorded.
    pub(crate) lacks_standby: Arc<AtomicBool>,
}

impl Local {
    /// The coordinator's time, which never goes back.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(crate) async fn ask(&self, request: Request) -> Result<Reply, Unavailable> {
        if self.lacks_standby.load(Ordering::Acquire) {
            return Err(Unavailable::NoStandby);
        }
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

    /// Every record of a task, oldest first, as far back as history is kept. None when there is no such task.
    pub(crate) async fn history(&self, scope: Scope, task: TaskId) -> Result<Option<History>, HistoryError> {
        let detail = match self.ask(Request::Read(Read::Task { scope, task })).await? {
            Reply::Task(Some(detail)) => detail,
            _ => return Ok(None),
        };
        let reader = self.history.clone();
        let last = detail.view.task.last;
        tokio::task::spawn_blocking(move || reader.history(last).map(Some))
            .await
            .map_err(|_| HistoryError::Unavailable(Unavailable::Stopped))?
    }

    pub(crate) async fn purged_task(
        &self,
        scope: Scope,
        task: TaskId,
    ) -> Result<Option<PurgedTask>, HistoryError> {
        self.purged.find(scope, task, self.now()).await
    }

    /// Calls the registry, which takes no queue: nothing in it is a decision.
    pub(crate) fn registry_call(&self, call: RegistryCall) -> RegistryReply {
        let (registry, now) = (&self.registry, self.now());
        match call {
            RegistryCall::Register { scope, worker, registration } => {
                RegistryReply::Started(registry.register(&scope, &worker, registration, now))
            }
            RegistryCall::Unregister { scope, worker, session } => {
                registry.unregister(&scope, &worker, session.as_ref(), now);
                RegistryReply::Done
            }
            RegistryCall::RecordStatus { scope, worker, session, status } => RegistryReply::Liveness(
                registry.record_status(&scope, &worker, session.as_ref(), status, now),
            ),
            RegistryCall::RecordHeartbeat { scope, worker } => {
                registry.record_heartbeat(&scope, &worker, now);
                RegistryReply::Done
            }
            RegistryCall::Registered { scope, worker } => {
                RegistryReply::Registered(registry.registered(&scope, &worker, now))
            }
            RegistryCall::Registrations { tenant, worker } => {
                RegistryReply::Registrations(registry.registrations(&tenant, &worker, now))
            }
            RegistryCall::Offered { scope } => RegistryReply::Offered(registry.offered(&scope, now)),
            RegistryCall::Count { tenant } => {
                let count = match tenant {
                    Some(tenant) => registry.registered_in_tenant(&tenant, now),
                    None => registry.registered_count(now),
                };
                RegistryReply::Count(count as u64)
            }
            RegistryCall::RegisteredFor => {
                let until = registry.registered_until(now);
                RegistryReply::RegisteredForMs(until.map(|until| until.since_ms(now)))
            }
            RegistryCall::NoteLeases { identity, leases } => {
                registry.lease_holders.note(identity.as_ref(), &leases);
                RegistryReply::Done
            }
            RegistryCall::RefundUpload { lease, bytes } => {
                registry.lease_holders.refund(&lease, bytes);
                RegistryReply::Done
            }
            RegistryCall::SetRefused { lease, is_refused } => {
                registry.lease_holders.set_refused(&lease, is_refused);
                RegistryReply::Done
            }
            RegistryCall::Refused { leases } => {
                RegistryReply::Refused(registry.lease_holders.refused(&leases))
            }
        }
    }

    /// Answers a call of any kind.
    pub(crate) async fn call(&self, call: Call) -> CallReply {
        let unavailable = |why| CallReply::Asked(Reply::Unavailable(why));
        let failed = |error| match error {
            HistoryError::Unavailable(why) => unavailable(why),
            HistoryError::Ledger(what) => CallReply::LedgerError(what),
        };
        match call {
            Call::Ask(request) => self.ask(request).await.map_or_else(unavailable, CallReply::Asked),
            Call::Registry(_) if self.inbox.is_closed() => unavailable(Unavailable::Stopped),
            Call::Registry(call) => CallReply::Registry(self.registry_call(call)),
            Call::History { scope, task } => {
                self.history(scope, task).await.map_or_else(failed, CallReply::History)
            }
            Call::PurgedTask { scope, task } => {
                self.purged_task(scope, task).await.map_or_else(failed, CallReply::PurgedTask)
            }
        }
    }
}
