//! The state that all handlers share: the handle of the coordinator, the signing keys and the limits.

use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use authority::command::{Grant, LeaseTasks, ReportCompletion, ReportFailure, Verdict};
use authority::{HeldLease, LeaseRef};
use coordinator::Handle;
use execution::EXECUTION_QUEUE;
use tokio::sync::watch;
use tokio::time::Instant;
use url::Url;
use wire::MAX_WAIT_MS;

use crate::convert::lease_id::LeaseIds;
use crate::convert::page_token::PageTokens;
use crate::convert::push_secrets::PushSecrets;
use crate::convert::task_token::TaskTokens;
use crate::convert::{Code, Limit, Problem};
use crate::edge::audit_trail::AuditTrail;
use crate::edge::auth::{AuditLog, AuthMode, Caller, CertificateRule, CertificateRules, Identity, KeyTable};
use crate::edge::bodies::Bodies;
use crate::edge::compute::Compute;
use crate::edge::jwt::Issuers;
use crate::edge::limits::{InUse, LimitTable, LimitsByTenant, PoolPermit, SharedPool};
use crate::edge::receiving::Receiving;
use crate::grpc;
use crate::metrics::Metrics;
use crate::push;
use crate::reapi::{Content, Executions, PinGuard};

/// Most requests that wait for a task at one time, whatever they wait for; tenants share them.
const MAX_WAITING_REQUESTS: usize = 20_000;

#[derive(Clone)]
pub struct App(Arc<Inner>);

/// What the app gives access to; it cannot be named outside.
pub struct Inner {
    pub(crate) handle: Handle,
    pub(crate) lease_ids: LeaseIds,
    pub(crate) page_tokens: PageTokens,
    pub(crate) task_tokens: TaskTokens,
    pub(crate) push_secrets: PushSecrets,
    waiting: Arc<SharedPool>,
    pub(crate) limits: Arc<LimitTable>,
    pub(crate) bodies: Bodies,
    pub(crate) compute: Compute,
    phase: watch::Sender<Phase>,
    gave_socket_away: AtomicBool,
    pub(crate) grpc: grpc::Shared,
    pub(crate) push: push::Shared,
    pub(crate) content: Option<Content>,
    pub(crate) executions: Option<Executions>,
    pub(crate) metrics: Metrics,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) auth: AuthMode,
    pub(crate) keys: KeyTable,
    pub(crate) issuers: Issuers,
    pub(crate) certificates: CertificateRules,
    pub(crate) embedded_worker: Arc<Identity>,
    pub(crate) audit: AuditLog,
}

impl Deref for App {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// Outputs of an execution that stay in the content store until this is dropped.
#[derive(Default)]
pub(crate) struct PinnedOutputs {
    _pinned: Option<PinGuard>,
}

/// The stream of a worker, which counts for its tenant until this is dropped.
pub(crate) struct WorkStream {
    _limit: Option<InUse>,
    _permit: PoolPermit,
}

/// The phases of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// Everything is served, but `/readyz` and gRPC health say that the server is not ready.
    Leaving,
    /// The same, and each connection closes after its next answer, or when its streams have ended.
    Lingering,
    /// Waits are ended, and nothing new is served.
    Draining,
}

/// The settings of a server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub scheduler: grpc::Scheduler,
    pub push: push::PushOptions,
    pub receiving: Receiving,
    /// What remote execution needs; it is not served without.
    pub content: Option<Content>,
    pub metrics: Metrics,
    /// Names by which the server may be called without a credential, besides its addresses and `localhost`.
    pub allowed_hosts: Vec<String>,
    pub auth: AuthMode,
    /// What each tenant may use at most.
    pub tenant_limits: LimitsByTenant,
    /// Issuers of tokens that are accepted beside API keys.
    pub issuers: Issuers,
    /// What the holders of client certificates may do.
    pub certificates: Vec<CertificateRule>,
    /// Where the lines of the audit log are kept, besides the log itself.
    pub audit_trail: Option<AuditTrail>,
}

impl App {
    /// `lease_key` must stay the same over restarts, or workers cannot report on the leases that they hold. The keys of
    /// task tokens come from it as well.
    pub fn new(handle: Handle, lease_key: [u8; 32]) -> App {
        App::with_options(handle, lease_key, Options::default())
    }

    /// As [`App::new`], with other settings.
    pub fn with_options(handle: Handle, lease_key: [u8; 32], options: Options) -> App {
        let Options { scheduler, push, receiving, content, metrics, auth, issuers, certificates, .. } =
            options;
        let (mut allowed_hosts, tenant_limits) = (options.allowed_hosts, options.tenant_limits);
        let audit_trail = options.audit_trail;
        // A proxy in front of the server may pass on the name under which it is called back.
        let callback_url = push.callback_url.as_deref().and_then(|url| Url::parse(url).ok());
        allowed_hosts.extend(callback_url.and_then(|url| url.host_str().map(str::to_owned)));
        metrics.show(handle.metrics());
        handle.set_heartbeat_timeout(scheduler.heartbeat_timeout);
        let compute = Compute::default();
        let limits = Arc::new(LimitTable::new(tenant_limits, metrics.clone()));
        let executions =
            content.as_ref().map(|content| Executions::new(&handle, content, compute.clone(), &limits));
        App(Arc::new(Inner {
            handle,
            lease_ids: LeaseIds::new(&lease_key),
            page_tokens: PageTokens::new(&lease_key),
            task_tokens: TaskTokens::new(&lease_key, push.token_ttl),
            push_secrets: PushSecrets::new(&lease_key),
            waiting: SharedPool::new(MAX_WAITING_REQUESTS),
            limits,
            bodies: Bodies::new(receiving),
            compute,
            phase: watch::Sender::new(Phase::Serving),
            gave_socket_away: AtomicBool::new(false),
            grpc: grpc::Shared::new(scheduler),
            push: push::Shared::new(push),
            content,
            executions,
            metrics,
            allowed_hosts,
            auth,
            keys: KeyTable::default(),
            issuers,
            certificates: certificates.into(),
            embedded_worker: Arc::new(Identity::embedded_worker()),
            audit: AuditLog::new(audit_trail),
        }))
    }

    /// Makes readiness checks fail, because the server is about to stop. It serves until it does.
    pub fn leave(&self) {
        self.enter(Phase::Leaving);
    }

    /// Closes connections as their calls end. Waits and streams go on.
    pub(crate) fn linger(&self) {
        self.enter(Phase::Lingering);
    }

    /// Accepts no connections when the server lingers: another process does, on the same socket.
    pub fn give_socket_away(&self) {
        self.gave_socket_away.store(true, Ordering::Relaxed);
    }

    pub(crate) fn accepts_while_lingering(&self) -> bool {
        !self.gave_socket_away.load(Ordering::Relaxed)
    }

    /// Ends all waits, so that the server can stop.
    pub(crate) fn drain(&self) {
        self.enter(Phase::Draining);
    }

    pub(crate) fn is_leaving(&self) -> bool {
        *self.phase.borrow() >= Phase::Leaving
    }

    pub(crate) fn is_lingering(&self) -> bool {
        *self.phase.borrow() >= Phase::Lingering
    }

    /// Resolves once the server is about to stop.
    pub(crate) async fn leaving(&self) {
        self.reached(Phase::Leaving).await;
    }

    /// Resolves once the server stops.
    pub(crate) async fn draining(&self) {
        self.reached(Phase::Draining).await;
    }

    fn enter(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let is_later = *now < phase;
            *now = phase.max(*now);
            is_later
        });
    }

    async fn reached(&self, phase: Phase) {
        // The sender lives as long as the app, so this cannot fail.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// Leases tasks within the bound on waits. There are none when the wait is over or the server stops.
    pub(crate) async fn poll(&self, command: LeaseTasks, wait_ms: u64) -> Result<Vec<Grant>, Problem> {
        let wait = Duration::from_millis(wait_ms.min(MAX_WAIT_MS));
        let tenant = command.scope.tenant.clone();
        match self.waiting(&tenant, wait, self.handle.lease(command, wait)).await? {
            Some(grants) => Ok(grants?),
            None => Ok(Vec::new()),
        }
    }

    /// Reports a completion. The outputs of an execution must be in the content store.
    pub(crate) async fn complete(
        &self,
        caller: &Caller,
        report: ReportCompletion,
    ) -> Result<Verdict, Problem> {
        let _pinned = self.check_outputs(caller, &report, Instant::now()).await?;
        let lease = report.lease.clone();
        let verdict = self.handle.complete(report).await?;
        if matches!(verdict, Verdict::Committed(_)) {
            self.note_end(caller, &lease);
        }
        Ok(verdict)
    }

    /// Reports a failure.
    pub(crate) async fn fail(&self, caller: &Caller, report: ReportFailure) -> Result<Verdict, Problem> {
        self.check_failure(caller, &report).await?;
        let lease = report.lease.clone();
        let verdict = self.handle.fail(report).await?;
        if matches!(verdict, Verdict::Committed(_)) {
            self.note_end(caller, &lease);
        }
        Ok(verdict)
    }

    /// Makes the output visible that the failure of a worker names. Every failure goes through here before the coordinator is
    /// asked.
    pub(crate) async fn check_failure(&self, caller: &Caller, report: &ReportFailure) -> Result<(), Problem> {
        match &self.executions {
            Some(executions) => {
                let message = &report.error.message;
                executions.worker_access.promote_named(caller, &report.lease, message).await?;
                executions.promote_partial(caller, report).await
            }
            None => Ok(()),
        }
    }

    /// Notes that the caller holds leases, so that it may read the inputs and upload the outputs.
    pub(crate) async fn note_leases(&self, caller: &Caller, leases: &[LeaseRef]) {
        if let Some(executions) = &self.executions {
            executions.worker_access.note_leases(caller, leases).await;
        }
    }

    /// Notes the leases that were granted to the caller.
    pub(crate) async fn note_grants(&self, caller: &Caller, grants: &[Grant]) {
        if self.executions.is_some() {
            let leases: Vec<LeaseRef> = grants.iter().map(Grant::lease_ref).collect();
            self.note_leases(caller, &leases).await;
        }
    }

    /// Notes that a report of the caller ended a lease.
    pub(crate) fn note_end(&self, caller: &Caller, lease: &LeaseRef) {
        if let Some(executions) = &self.executions {
            executions.worker_access.note_end(caller, lease);
        }
    }

    /// Checks that the outputs of a completed execution are in the content store, and keeps them there. Every completion goes
    /// through here before the coordinator is asked; the guard is held until its answer. The time of a check counts from when
    /// the report was received.
    pub(crate) async fn check_outputs(
        &self,
        caller: &Caller,
        report: &ReportCompletion,
        received_at: Instant,
    ) -> Result<PinnedOutputs, Problem> {
        match &self.executions {
            Some(executions) => {
                let _pinned = executions.check_outputs(caller, report, received_at).await?;
                if caller.worker_only().is_some() {
                    let result = String::from_utf8_lossy(&report.result);
                    executions.worker_access.promote_named(caller, &report.lease, &result).await?;
                }
                Ok(PinnedOutputs { _pinned })
            }
            None => Ok(PinnedOutputs::default()),
        }
    }

    /// Whether any completion could have outputs to check.
    pub(crate) fn has_executions(&self) -> bool {
        let has_others = self.handle.has_other_nodes();
        self.executions.as_ref().is_some_and(|executions| has_others || !executions.in_flight.is_idle())
    }

    /// Leaves out the leases under which the completion of an execution was refused without a verdict.
    pub(crate) async fn leave_out_refused(&self, held: &mut Vec<HeldLease>) {
        if let Some(executions) = &self.executions {
            let of_executions = held.iter().filter(|held| *held.queue == *EXECUTION_QUEUE);
            let refused = executions.refused(of_executions.map(|held| &held.lease)).await;
            held.retain(|held| !refused.contains(&(held.lease.fencing_token, held.lease.task)));
        }
    }

    /// A permit for the stream of a worker.
    pub(crate) fn work_stream(&self, tenant: &Arc<str>) -> Result<WorkStream, Problem> {
        let limit = self.limits.take(Limit::Streams, tenant)?;
        Ok(WorkStream { _limit: limit, _permit: self.grpc.stream(tenant)? })
    }

    /// Runs something that waits, within the bounds on such requests of the tenant and of all. None when the server began to stop first.
    pub(crate) async fn waiting<T>(
        &self,
        tenant: &Arc<str>,
        wait: Duration,
        work: impl Future<Output = T>,
    ) -> Result<Option<T>, Problem> {
        if wait.is_zero() {
            return Ok(Some(work.await));
        }
        let _limit = self.limits.take(Limit::Polls, tenant)?;
        let _permit = self.waiting.take(tenant, 1).ok_or_else(|| {
            let detail = format!(
                "of at most {MAX_WAITING_REQUESTS} waiting requests, tenant {tenant} has its share, or all are taken"
            );
            Problem::new(Code::TooManyPolls, detail)
        })?;
        tokio::select! {
            biased;
            done = work => Ok(Some(done)),
            () = self.draining() => Ok(None),
        }
    }
}
