//! Indexes what only the ledger knows: the id of a task whose acceptance was lost, and the digests by which the
//! coordinator recognizes reports, submits and requests.
//!
//! A digest is taken from the record of the same content. A content that was never recorded gets one that no record
//! has, so that two contents never pass for one.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use auditor::history::Recorded;
use authority::{Category, DeadReason, Digest, Event, Outcome, Position, QueueKey, TaskError, TaskId, Time};

/// The content of a report on an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ReportContent {
    Completed(Arc<[u8]>),
    Failed(Category, Option<Arc<str>>, Arc<str>),
}

/// A queue and a payload.
type Submitted = (Arc<QueueKey>, Arc<[u8]>);

#[derive(Default)]
pub(super) struct LedgerIndex {
    /// Tasks by what was submitted.
    created: HashMap<Submitted, Vec<TaskId>>,
    /// Those whose making is explained by a call.
    claimed: HashSet<TaskId>,
    payloads: HashSet<Arc<[u8]>>,
    dedups: HashMap<(Submitted, Arc<str>), Digest>,
    reports: HashMap<(Position, ReportContent), Digest>,
    /// Reports without authority. Their records do not have their content.
    discarded: HashMap<Position, Digest>,
    dead: HashMap<Position, DeadReason>,
    requests: HashMap<Position, Option<Digest>>,
    /// When each lease was granted, and until when it was to live.
    granted: HashMap<Position, (Time, Time)>,
    made_up: u128,
}

impl LedgerIndex {
    pub(super) fn from(records: &[Recorded]) -> LedgerIndex {
        let mut index = LedgerIndex::default();
        records.iter().for_each(|record| index.record(record));
        index
    }

    fn record(&mut self, record: &Recorded) {
        match &record.event {
            Event::TaskCreated(event) => {
                let submitted = (event.queue.clone(), event.payload.clone());
                self.payloads.insert(event.payload.clone());
                if let Some(dedup) = event.options.as_ref().and_then(|options| options.dedup.as_ref()) {
                    self.dedups.insert((submitted.clone(), dedup.key.clone()), dedup.content);
                }
                self.created.entry(submitted).or_default().push(event.task);
            }
            Event::LeaseGranted(event) => {
                self.requests.insert(record.position, event.request);
                self.granted.insert(record.position, (record.at, event.expires_at));
            }
            Event::TaskCompleted(event) => {
                self.reports.insert(
                    (event.fencing_token, ReportContent::Completed(event.result.clone())),
                    event.digest,
                );
            }
            Event::TaskFailed(event) => {
                self.reports.insert((event.fencing_token, ReportContent::failed(&event.error)), event.digest);
            }
            Event::TaskDead(event) => {
                if let Some(report) = &event.report {
                    self.reports
                        .insert((report.fencing_token, ReportContent::failed(&report.error)), report.digest);
                    self.dead.insert(report.fencing_token, event.reason);
                }
            }
            Event::TaskCancelled(event) => drop(self.discarded.insert(event.fencing_token, event.digest)),
            _ => {}
        }
    }

    /// An answer said that this call created this task.
    pub(super) fn claim_confirmed(&mut self, id: TaskId) {
        self.claimed.insert(id);
    }

    /// The id of a task that an unanswered call may have created, or an id that no task has.
    pub(super) fn claim_unconfirmed(&mut self, queue: &Arc<QueueKey>, payload: &Arc<[u8]>) -> TaskId {
        let ids = self.created.get(&(queue.clone(), payload.clone()));
        let unclaimed = ids.into_iter().flatten().copied().find(|id| !self.claimed.contains(id));
        let id = unclaimed.unwrap_or_else(|| self.id_of_no_task());
        self.claimed.insert(id);
        id
    }

    pub(super) fn id_of_no_task(&mut self) -> TaskId {
        self.made_up += 1;
        TaskId(self.made_up)
    }

    /// The same bytes, kept once.
    pub(super) fn payload(&self, bytes: &[u8]) -> Arc<[u8]> {
        self.payloads.get(bytes).cloned().unwrap_or_else(|| bytes.into())
    }

    pub(super) fn dedup(&mut self, queue: &Arc<QueueKey>, key: &Arc<str>, payload: &Arc<[u8]>) -> Digest {
        let content = ((queue.clone(), payload.clone()), key.clone());
        let known = self.dedups.get(&content).copied();
        known.unwrap_or_else(|| self.digest_of_no_record())
    }

    /// A report got the answer that it came without authority: it is the discarded one.
    pub(super) fn claim_discarded(&mut self, lease: Position, content: &ReportContent) {
        let content = (lease, content.clone());
        if !self.reports.contains_key(&content)
            && let Some(digest) = self.discarded.remove(&lease)
        {
            self.reports.insert(content, digest);
        }
    }

    pub(super) fn report_digest(&mut self, lease: Position, content: ReportContent) -> Digest {
        let content = (lease, content);
        match self.reports.get(&content) {
            Some(digest) => *digest,
            None => {
                let digest = self.digest_of_no_record();
                self.reports.insert(content, digest);
                digest
            }
        }
    }

    /// By which request a lease was asked for.
    pub(super) fn request(&self, lease: Position) -> Option<Digest> {
        self.requests.get(&lease).copied().flatten()
    }

    /// When a lease was granted, and until when it was to live at first.
    pub(super) fn granted(&self, lease: Position) -> Option<(Time, Time)> {
        self.granted.get(&lease).copied()
    }

    pub(super) fn is_dead(&self, lease: Position) -> bool {
        self.dead.contains_key(&lease)
    }

    /// What became of a task whose failed attempt ended it; the record says why, the answer does not.
    pub(super) fn death(&self, lease: Position) -> Outcome {
        // Nobody here asks for a task to be killed, so without a record no verdict says this.
        Outcome::Dead(self.dead.get(&lease).copied().unwrap_or(DeadReason::Killed))
    }

    pub(super) fn digest_of_no_record(&mut self) -> Digest {
        self.made_up += 1;
        Digest(self.made_up.to_be_bytes())
    }
}

impl ReportContent {
    pub(super) fn failed(error: &TaskError) -> ReportContent {
        ReportContent::Failed(error.category, error.code.clone(), error.message.clone())
    }
}
