//! The numbers of the reasons why a task is dead. A number never changes its meaning.

use authority::DeadReason;

use crate::record::error::DecodeError;

pub fn number(reason: DeadReason) -> u32 {
    match reason {
        DeadReason::Cancelled => 1,
        DeadReason::CancelTimeout => 2,
        DeadReason::HeartbeatTimeout => 3,
        DeadReason::Deadline => 4,
        DeadReason::Killed => 5,
    }
}

pub fn from_number(wanted: u32) -> Result<DeadReason, DecodeError> {
    if wanted == 0 {
        return Err(DecodeError::Missing("the reason of a death"));
    }
    let known = DeadReason::ALL.into_iter().find(|reason| number(*reason) == wanted);
    known.ok_or(DecodeError::Newer("a reason of a death"))
}
