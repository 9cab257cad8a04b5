//! A report that a worker makes on a lease, in no particular contract.

use contract_clients::{LeaseRef, ReportKind};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReportRequest {
    pub lease: LeaseRef,
    pub kind: ReportKind,
    pub intent: Intent,
}

/// What the sender of a report knows about it beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// The holder's own first report, or a repeat of it: never REJECTED.
    Own,
    /// A second, different report after the first was answered: never COMMITTED.
    Conflicting,
    /// A forged lease, another's worker id or another task: always REJECTED.
    Forged,
}

impl ReportRequest {
    /// Two reports with the same key have the same content and the same lease.
    pub(crate) fn key(&self) -> (String, String) {
        (self.lease.lease_id.clone(), format!("{:?} {:?}", self.lease, self.kind))
    }
}
