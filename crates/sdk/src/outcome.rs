//! The outcome of an attempt, as its worker sees it.

use wire::TaskState;

use crate::Error;

/// The first three are the coordinator's verdicts; the others say why there is none.
#[derive(Debug)]
pub enum Outcome {
    /// The report is accepted and the attempt is over.
    Committed(TaskState),
    /// The attempt had lost its authority; its result was discarded.
    Cancelled,
    /// The report itself was invalid: a bug, or misuse of the protocol.
    Rejected(Error),
    /// The lease was lost before the report, so nothing was reported.
    Lost,
    /// No answer came while the lease was valid; the coordinator knows the state of the task.
    Unknown(Error),
    /// The worker stopped and released the lease.
    Released(TaskState),
}

impl Outcome {
    /// A refusal by the coordinator is a verdict; the answer of another server is not.
    pub(crate) fn refused(error: Error) -> Outcome {
        match error {
            Error::Refused(_) => Outcome::Rejected(error),
            error => Outcome::Unknown(error),
        }
    }
}
