//! What a worker says about a lease, in no contract's words.

use serde_json::Value;
use wire::ErrorCategory;

/// How a worker names the lease that it speaks of. Whether it is its own, the server has to find out.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// What the contract proves a lease with: the lease id, or the task token where work is pushed.
    pub lease_id: String,
    pub task_id: String,
    pub worker_id: String,
    pub attempt: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Story {
    pub held: Held,
    pub kind: ReportKind,
    pub intent: Intent,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ReportKind {
    Completed(Value),
    Failed(Failure),
    GivenBack,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub category: ErrorCategory,
    pub message: String,
    pub retryable: bool,
}

/// What the sender of a report knows about it beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// The holder's own first story, or a repeat of it: never REJECTED.
    Own,
    /// A second, different story after the first was answered: never COMMITTED.
    Conflicting,
    /// A forged lease, another's worker id or another task: always REJECTED.
    Forged,
}

impl Story {
    /// Two stories with the same key say the same about the same lease.
    pub fn key(&self) -> (String, String) {
        (self.held.lease_id.clone(), format!("{:?} {:?}", self.held, self.kind))
    }
}
