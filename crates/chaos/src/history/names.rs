//! Maps the ids of the contracts to those of the coordinator: task ids, lease ids, request ids. All contracts share the
//! map, because a lease of one contract may be named through another.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use auditor::history::Recorded;
use authority::{Digest, LeaseRef, Position, QueueKey, Scope, TaskId, Time};
use jiff::Timestamp;

use super::LedgerIndex;
use super::ledger_index::ReportContent;
use super::worker_call::{LeaseName, Leased, Poll};
use crate::contract::Contract;

pub(super) struct Names {
    pub scope: Scope,
    pub ledger: LedgerIndex,
    /// The lease that each lease id names.
    leases: HashMap<String, LeaseRef>,
    lease_ids: HashMap<Position, String>,
    /// Request ids of workers.
    requests: HashMap<(String, String), Digest>,
    /// Reports that were rejected as conflicting.
    pub contradicted: HashSet<(Position, ReportContent)>,
}

impl Names {
    pub(super) fn new(records: &[Recorded]) -> Names {
        Names {
            scope: Scope { tenant: "default".into(), workspace: "default".into() },
            ledger: LedgerIndex::from(records),
            leases: HashMap::new(),
            lease_ids: HashMap::new(),
            requests: HashMap::new(),
            contradicted: HashSet::new(),
        }
    }

    pub(super) fn queue(&self, name: &str) -> Arc<QueueKey> {
        Arc::new(QueueKey { scope: self.scope.clone(), name: name.into() })
    }

    /// Records a lease that a worker got in answer to this poll.
    pub(super) fn record_lease(
        &mut self,
        contract: Contract,
        poll: &Poll,
        leased: &Leased,
    ) -> Result<(), String> {
        let granted = LeaseRef {
            scope: self.scope.clone(),
            worker: poll.worker.as_str().into(),
            task: leased.task,
            attempt: leased.attempt,
            fencing_token: leased.lease,
        };
        let before = self.leases.insert(leased.proof.clone(), granted.clone());
        if let Some(before) = before.filter(|before| *before != granted) {
            return Err(format!("one lease id stands for two leases: {before:?} and {granted:?}"));
        }
        // Of task tokens there may be several.
        if contract.has_lease_ids() {
            let before = self.lease_ids.insert(granted.fencing_token, leased.proof.clone());
            if before.is_some_and(|before| before != leased.proof) {
                return Err(format!("one lease has two lease ids: {granted:?}"));
            }
        }
        if let (Some(id), Some(digest)) = (&poll.request, self.ledger.request(granted.fencing_token)) {
            self.requests.entry((poll.worker.clone(), id.clone())).or_insert(digest);
        }
        Ok(())
    }

    /// The digest by which the coordinator knows a request again.
    pub(super) fn request(&mut self, poll: &Poll) -> Option<Digest> {
        let id = poll.request.clone()?;
        let digest = self.requests.get(&(poll.worker.clone(), id)).copied();
        Some(digest.unwrap_or_else(|| self.ledger.digest_of_no_record()))
    }

    /// The named lease, if it was granted to this worker for this task.
    pub(super) fn lease(&self, lease_name: &LeaseName) -> LeaseRef {
        let (proof, worker, task) = match lease_name {
            LeaseName::FromWorker { proof, worker, task } => (proof, worker.as_deref(), *task),
            LeaseName::Recorded(lease) => return lease.clone(),
        };
        let known = self.leases.get(proof).filter(|lease| {
            let is_its_own = worker.is_none_or(|worker| *lease.worker == *worker);
            is_its_own && task.is_none_or(|task| task == lease.task)
        });
        known.cloned().unwrap_or_else(|| LeaseRef {
            scope: self.scope.clone(),
            worker: worker.unwrap_or_default().into(),
            task: task.unwrap_or(TaskId(0)),
            attempt: 0,
            fencing_token: Position::ZERO,
        })
    }
}

pub(super) fn task_id(text: &str) -> Option<TaskId> {
    let is_written_so = text.len() == 36 && text.matches('-').count() == 4;
    u128::from_str_radix(&text.replace('-', ""), 16).ok().filter(|_| is_written_so).map(TaskId)
}

/// As whom and for what a task was named: nonsense stands for a task that there never was.
pub(super) fn lease_name(proof: &str, worker: Option<&str>, task: Option<&str>) -> LeaseName {
    let task = task.map(|task| task_id(task).unwrap_or(TaskId(0)));
    LeaseName::FromWorker { proof: proof.to_owned(), worker: worker.map(str::to_owned), task }
}

pub(super) fn time(at: Timestamp) -> Time {
    Time(u64::try_from(at.as_millisecond()).unwrap_or_default())
}

pub(super) fn text(text: &Option<String>) -> Option<Arc<str>> {
    text.as_deref().map(Into::into)
}

pub(super) fn category(category: wire::ErrorCategory) -> authority::Category {
    use authority::Category;
    match category {
        wire::ErrorCategory::UserCode => Category::UserCode,
        wire::ErrorCategory::DataQuality => Category::DataQuality,
        wire::ErrorCategory::Infrastructure => Category::Infrastructure,
        wire::ErrorCategory::Configuration => Category::Configuration,
        wire::ErrorCategory::Timeout => Category::Timeout,
        wire::ErrorCategory::Cancelled => Category::Cancelled,
    }
}
