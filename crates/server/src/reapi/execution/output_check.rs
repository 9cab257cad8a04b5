//! The check that a completed execution has its outputs in the content store. Every contract asks it before it asks the
//! authority, so that no execution is committed whose outputs nobody can read (W8).
//!
//! A report that is refused here has no verdict: the worker uploads the outputs and reports again. A report whose verdict
//! is recorded already, or whose lease is over, is passed on, because the authority commits nothing by it.

use std::collections::HashSet;
use std::pin::pin;
use std::time::Duration;

use authority::LeaseRef;
use authority::command::{ExtendLease, ReportCompletion, ReportFailure};
use blobs::{Digest, DigestFunction, Error};
use coordinator::{Handle, LeaseKey, Unavailable};
use tokio::time::{Instant, timeout, timeout_at};
use tonic::{Code as GrpcCode, Status};

use super::outputs;
use super::pins::PinGuard;
use crate::convert::{Code, Problem};
use crate::edge::auth::Caller;
use crate::reapi::Executions;
use crate::reapi::messages::ActionResult;
use crate::reapi::store;
use execution::{EXECUTION_QUEUE, ExecutionPayload, digest};

/// The longest time from the receipt of a report to the end of its check. The next message of a stream waits for it, and the
/// worker repeats the report.
const MAX_CHECK: Duration = Duration::from_secs(10);
/// The longest pause between two extensions of a lease whose report is being checked.
const MAX_PAUSE: Duration = Duration::from_secs(1);

impl Executions {
    /// Pins the outputs of an execution and checks that they are present. The guard keeps them until the report is decided.
    pub(crate) async fn check_outputs(
        &self,
        caller: &Caller,
        report: &ReportCompletion,
        received_at: Instant,
    ) -> Result<Option<PinGuard>, Problem> {
        let lease = &report.lease;
        if self.in_flight.is_idle() && !self.handle.has_other_nodes() {
            return Ok(None);
        }
        let is_of_action = || execution::result::decode(&report.result).is_ok();
        let Some(function) = self.function_of(lease, is_of_action).await? else { return Ok(None) };
        // A result that is none of an action has no outputs.
        let Ok(result) = execution::result::decode(&report.result) else { return Ok(None) };
        if !names_outputs(&result) {
            return Ok(None);
        }
        // A lease that is over makes nothing visible; and after a restart its holder may not be known.
        let worker = match caller.worker_only() {
            Some(identity) if is_live(&self.handle, lease).await? => {
                self.worker_access.note_leases(caller, std::slice::from_ref(lease)).await;
                Some(identity)
            }
            _ => None,
        };
        let check = async {
            let store = self.store_for(caller, &lease.scope)?;
            let needed = outputs::needed(&store, &result, function).await?;
            // Pinned before the lookup, so that outputs that are found stay.
            let held = self.pins.pin(&store, &needed);
            let missing = store.missing(&needed).await?;
            if let Some(identity) = worker.filter(|_| missing.is_empty()) {
                // Before the commit, so that nobody finds a result whose outputs cannot be read.
                match self.worker_access.promote(identity, &store.tenant, &needed).await {
                    // Nothing changes by waiting, so the worker must come to an end with it.
                    Err(Error::TenantFull { .. }) => return Ok((None, needed)),
                    promoted => promoted.map_err(store::status)?,
                }
            }
            Ok::<_, Status>((held, missing))
        };
        let checked = self.keep_alive(lease, timeout_at(received_at + MAX_CHECK, check)).await;
        let checked = checked
            .unwrap_or_else(|_| Err(Status::resource_exhausted("the outputs could not be checked in time")));
        let problem = match checked {
            Ok((held, missing)) if missing.is_empty() => {
                self.note_accepted(lease).await;
                return Ok(held);
            }
            Ok((_, missing)) => outputs_missing(&missing),
            Err(status) => to_problem(status),
        };
        if !is_live(&self.handle, lease).await? {
            return Ok(None);
        }
        // What is not decided only now is decided when the same report comes again.
        if !matches!(problem.code, Code::Overloaded | Code::NotServing) {
            self.note_refused(lease).await;
            let (task, why) = (lease.task, &problem.detail);
            tracing::warn!(%task, why, "the outputs of a completed execution were not accepted");
        }
        Err(problem)
    }

    async fn note_refused(&self, lease: &LeaseRef) {
        self.in_flight.set_refused(lease.task, lease.fencing_token);
        self.tell_refused(lease, true).await;
    }

    /// The owner need not be told of a lease whose completion was refused by another node: the report ends it next.
    async fn note_accepted(&self, lease: &LeaseRef) {
        if self.in_flight.is_refused(lease.task, lease.fencing_token) {
            self.in_flight.set_accepted(lease.task, lease.fencing_token);
            self.tell_refused(lease, false).await;
        }
    }

    async fn tell_refused(&self, lease: &LeaseRef, is_refused: bool) {
        let epoch = self.handle.epoch();
        if self.worker_access.asks_owner()
            && let Err(why) = self.handle.set_refused(lease.clone(), is_refused).await
        {
            self.worker_access.note_unanswered(epoch, why);
        }
    }

    /// Those of the leases under which the last completion was refused without a verdict.
    pub(crate) async fn refused(&self, leases: impl Iterator<Item = &LeaseRef>) -> HashSet<LeaseKey> {
        let keys: Vec<LeaseKey> = leases.map(|lease| (lease.fencing_token, lease.task)).collect();
        let is_refused = |(token, task): &&LeaseKey| self.in_flight.is_refused(*task, *token);
        let mut refused: HashSet<LeaseKey> = keys.iter().filter(is_refused).copied().collect();
        let epoch = self.handle.epoch();
        if !keys.is_empty() && self.worker_access.asks_owner() {
            match self.handle.refused(keys).await {
                Ok(elsewhere) => refused.extend(elsewhere),
                Err(why) => drop(self.worker_access.note_unanswered(epoch, why)),
            }
        }
        refused
    }

    /// The digest function of the execution that a report is about; none for a task of another kind.
    async fn function_of(
        &self,
        lease: &LeaseRef,
        is_of_action: impl Fn() -> bool,
    ) -> Result<Option<DigestFunction>, Problem> {
        match self.in_flight.function_of(lease.task) {
            Some(function) => Ok(Some(function)),
            // Another node may have begun the execution.
            None if self.handle.has_other_nodes() && is_of_action() => {
                Ok(function_of_task(&self.handle, lease).await?)
            }
            // Right after a restart, the execution may not have been found again.
            None if !self.handle.has_other_nodes() && !self.in_flight.is_loaded() && is_of_action() => {
                self.in_flight.load(&lease.scope).await.map_err(to_problem)?;
                Ok(self.in_flight.function_of(lease.task))
            }
            None => Ok(None),
        }
    }

    /// Makes the output of a stopped execution visible that its failure has. What is not in the content store, or not found there
    /// in time, is left out of the answer to the client: the failure is recorded all the same.
    pub(crate) async fn promote_partial(
        &self,
        caller: &Caller,
        report: &ReportFailure,
    ) -> Result<(), Problem> {
        let (lease, details) = (&report.lease, report.details.as_ref());
        let partial = details.and_then(|details| details.partial_progress.as_ref());
        let result = partial.and_then(|partial| execution::result::decode(partial).ok());
        let (Some(identity), Some(result)) = (caller.worker_only(), result) else { return Ok(()) };
        let Some(function) = self.function_of(lease, || true).await? else { return Ok(()) };
        let named = [&result.stdout_digest, &result.stderr_digest].into_iter().flatten();
        let named: Vec<_> =
            named.filter_map(|output| digest::from_proto(Some(output), function, "an output").ok()).collect();
        if named.is_empty() || !is_live(&self.handle, lease).await? {
            return Ok(());
        }
        let tenant = crate::reapi::tenant(&lease.scope).map_err(to_problem)?;
        let promoting = timeout(MAX_CHECK, self.worker_access.promote(identity, &tenant, &named));
        match self.keep_alive(lease, promoting).await {
            Ok(Ok(()) | Err(Error::NotFound(_) | Error::TenantFull { .. })) => {}
            Ok(Err(error)) => {
                tracing::warn!(task = %lease.task, %error, "the output of a stopped execution is left out");
            }
            Err(_) => tracing::warn!(task = %lease.task, "the output of a stopped execution is left out"),
        }
        Ok(())
    }

    /// Waits for a check, and keeps the worker and its lease alive meanwhile: they must not end because the content store is
    /// slow (C25). A lease whose completion was refused before is left to the worker's own heartbeats.
    async fn keep_alive<T>(&self, lease: &LeaseRef, check: impl Future<Output = T>) -> T {
        let third = Duration::from_millis((self.handle.heartbeat_timeout_ms() / 3).max(1));
        let mut check = pin!(check);
        loop {
            if let Ok(checked) = timeout(MAX_PAUSE.min(third), &mut check).await {
                return checked;
            }
            if !self.refused([lease].into_iter()).await.is_empty() {
                let _ = self.handle.record_heartbeat(&lease.scope, &lease.worker).await;
            } else {
                // A lease that is over stays over, which the report will be told.
                let _ = self.handle.heartbeat(ExtendLease { lease: lease.clone() }, None).await;
            }
        }
    }
}

/// The digest function of an execution, from its task; none for a task of another kind.
async fn function_of_task(handle: &Handle, lease: &LeaseRef) -> Result<Option<DigestFunction>, Unavailable> {
    let detail = handle.task(lease.scope.clone(), lease.task).await?;
    let view = detail.map(|detail| detail.view).filter(|view| *view.queue.name == *EXECUTION_QUEUE);
    let payload = view.and_then(|view| ExecutionPayload::decode(&view.task.payload).ok());
    Ok(payload.and_then(|payload| payload.action().ok()).map(|action| action.function))
}

/// Whether a lease could still commit a report.
pub(crate) async fn is_live(handle: &Handle, lease: &LeaseRef) -> Result<bool, Unavailable> {
    let detail = handle.task(lease.scope.clone(), lease.task).await?;
    let current = detail.as_ref().and_then(|detail| detail.view.task.lease());
    let now = handle.now();
    Ok(current.is_some_and(|current| current.fencing_token == lease.fencing_token && !current.is_over(now)))
}

fn names_outputs(result: &ActionResult) -> bool {
    !result.output_files.is_empty()
        || !result.output_directories.is_empty()
        || result.stdout_digest.is_some()
        || result.stderr_digest.is_some()
}

fn outputs_missing(missing: &[Digest]) -> Problem {
    let count = missing.len();
    let detail = format!(
        "{count} of the outputs are not in the content store: upload them, and send the same report again while the lease lives"
    );
    let digests = missing.iter().take(Problem::MAX_DIGESTS).map(Digest::to_string).collect();
    Problem { digests, ..Problem::new(Code::OutputsMissing, detail) }
}

pub(crate) fn to_problem(status: Status) -> Problem {
    let message = status.message();
    match status.code() {
        GrpcCode::InvalidArgument => Problem::field("result", message),
        GrpcCode::ResourceExhausted => Problem::new(Code::Overloaded, message),
        GrpcCode::Unavailable => Problem::new(Code::NotServing, message),
        _ => Problem::new(Code::Internal, message),
    }
}
