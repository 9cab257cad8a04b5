//! How an attempt ended for its worker.

use wire::TaskState;

use crate::Error;

/// The first three are the coordinator's verdicts; the others say why there is none.
#[derive(Debug)]
pub enum Outcome {
    /// The report is accepted and the attempt is over.
    Committed(TaskState),
    /// The attempt had no authority any more; its result was thrown away.
    Cancelled,
    /// The report itself was invalid: a bug, or misuse of the protocol.
    Rejected(Error),
    /// The lease was lost before anything was reported, so nothing was.
    Lost,
    /// No answer came while the lease lived; the coordinator knows what became of the task.
    Unknown(Error),
    /// The worker stopped and gave the lease back.
    Released(TaskState),
}

impl Outcome {
    /// The coordinator's no to a report is a verdict; what somebody else says is none.
    pub(crate) fn refused(error: Error) -> Outcome {
        match error {
            Error::Refused(_) => Outcome::Rejected(error),
            error => Outcome::Unknown(error),
        }
    }
}
