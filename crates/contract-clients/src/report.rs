//! A worker's report on a lease, in no particular contract.

use serde_json::Value;
use wire::ErrorCategory;

/// A lease as a worker names it. Whether the worker holds the lease, the coordinator has to find out.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseRef {
    /// The proof of the lease: the lease id, or the task token where work is pushed.
    pub lease_id: String,
    pub task_id: String,
    pub worker_id: String,
    pub attempt: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ReportKind {
    Completed(Value),
    Failed(Failure),
    Released,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub category: ErrorCategory,
    pub message: String,
    pub retryable: bool,
}
